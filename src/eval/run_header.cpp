#include "eval/run_header.h"

#include <filesystem>
#include <span>

#include "core/file.h"
#include "core/hash.h"
#include "ctxzip/heads.h"
#include "ctxzip_version.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kLogVersion = 1;

const char* name_of(ReconAttention attention) {
  return attention == ReconAttention::kFull ? "full" : "local";
}

const char* name_of(KvType kv) {
  switch (kv) {
    case KvType::kF16:
      return "f16";
    case KvType::kQ8:
      return "q8";
    case KvType::kQ4:
      return "q4";
  }
  return "";
}

Json file_json(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (std::filesystem::is_directory(path)) {
    return {{"folder", std::filesystem::canonical(path).filename().string()}};
  }
  const MappedFile file(path);
  return {
      {"file", name}, {"bytes", file.bytes().size()}, {"xxhash64", to_hex(hash64(file.bytes()))}};
}

// Where the contexts come from, without folders of this machine.
Json data_json(const EvalRun& run, const std::string& data_path) {
  Json data = data_path.empty() ? Json{{"generator", run.task.name}} : file_json(data_path);
  if (!run.options.lengths.empty()) data["lengths"] = run.options.lengths;
  if (!run.options.filler.empty()) data["filler"] = file_json(run.options.filler);
  // A generator or reader that changes makes another run, whatever its options.
  Hasher64 hasher;
  const auto add = [&](const std::string& text) {
    hasher.update_value(text.size());
    hasher.update(std::as_bytes(std::span(text)));
  };
  for (const EvalContext& context : run.contexts) {
    add(context.text);
    for (const EvalQuestion& question : context.questions) {
      add(question_prompt(run.task, question));
      for (const std::string& answer : question.answers) add(answer);
    }
  }
  data["contexts_xxhash64"] = to_hex(hasher.digest());
  return data;
}

}  // namespace

Json run_header(const Model& model, const EvalRun& run, const std::string& data_path) {
  const RunOptions& options = run.options;
  Json methods = Json::array();
  for (const EvalMethod* method : options.methods) methods.push_back(method->name);
  Json heads;  // null without head scores
  if (options.heads != nullptr) {
    heads = to_hex(hash64(std::as_bytes(std::span(options.heads->values))));
  }
  return {
      {"record", "header"},
      {"format", "ctxzip-eval"},
      {"format_version", kLogVersion},
      {"ctxzip", CTXZIP_VERSION},
      {"task", run.task.name},
      {"group", run.task.group},
      {"instruction", run.task.instruction},
      {"metrics", run.metric_names()},
      {"model",
       {{"name", model.info().name},
        {"architecture", model.info().architecture},
        {"fingerprint", model.info().fingerprint}}},
      {"data", data_json(run, data_path)},
      {"methods", methods},
      {"ratios", options.ratios},
      {"heads", heads},
      {"n_contexts", run.contexts.size()},
      {"n_questions", run.n_questions()},
      {"max_tokens", options.max_tokens.value_or(run.task.max_tokens)},
      {"seed", options.seed},
      {"allocation", allocation_name(options.allocation)},
      {"recon_attention", name_of(options.recon_attention)},
      {"schedule", options.schedule == Schedule::kTwoPass ? "two-pass" : "streaming"},
      {"kv", name_of(options.kv)},
      {"chunk_tokens", options.chunk_tokens},
      {"chat_template", options.chat_template},
      // Each question is asked alone over the untouched context: no earlier turn, neither the
      // model's own answer nor the right one, is in the cache.
      {"turns", "independent"},
      {"sampling", "greedy"},
  };
}

}  // namespace ctxzip::eval
