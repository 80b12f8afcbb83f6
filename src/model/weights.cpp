#include "model/weights.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <map>

#include "core/fail.h"

namespace ctxzip {
namespace {

ggml_context_ptr new_context(size_t n_tensors) {
  ggml_context_ptr context(ggml_init({.mem_size = ggml_tensor_overhead() * (n_tensors + 4),
                                      .mem_buffer = nullptr,
                                      .no_alloc = true}));
  if (!context) fail(ErrorKind::kOutOfMemory, "no memory for {} tensor headers", n_tensors);
  return context;
}

ggml_tensor* new_tensor(ggml_context* context, const TensorInfo& info) {
  ggml_tensor* tensor = ggml_new_tensor_3d(context, info.type, info.ne[0], info.ne[1], info.ne[2]);
  ggml_set_name(tensor, info.name.c_str());
  return tensor;
}

bool can_multiply(ggml_type type) {
  return type == GGML_TYPE_F32 || ggml_get_type_traits_cpu(type)->vec_dot != nullptr;
}

void check_tensor(const GgufFile& file, const WeightSpec& spec, const TensorInfo& info) {
  if (!std::equal(spec.ne.begin(), spec.ne.end(), info.ne) || info.ne[3] != 1) {
    fail(ErrorKind::kCorruptFile, "{}: tensor '{}' is {} x {} x {} x {}, expected {} x {} x {}",
         file.path(), info.name, info.ne[0], info.ne[1], info.ne[2], info.ne[3], spec.ne[0],
         spec.ne[1], spec.ne[2]);
  }
  // Norms and biases enter element-wise operations, which take f32 only.
  const bool type_ok =
      spec.plain || spec.ne[1] == 1 ? info.type == GGML_TYPE_F32 : can_multiply(info.type);
  if (!type_ok) {
    fail(ErrorKind::kUnsupported, "{}: tensor '{}' has type {}, which is not supported there",
         file.path(), info.name, ggml_type_name(info.type));
  }
}

// The extra buffer types of the CPU backend (repacked weights and the like), best first.
std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device) {
  const auto get =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  std::vector<ggml_backend_buffer_type_t> types;
  for (auto* type = get != nullptr ? get(device) : nullptr; type != nullptr && *type != nullptr;
       ++type) {
    types.push_back(*type);
  }
  return types;
}

// Whether `device` multiplies this tensor faster from a buffer of `type`. ggml only tells when
// asked about an operation on a tensor that already lies in such a buffer, so an empty one is made.
bool serves_product(ggml_backend_dev_t device, ggml_backend_buffer_type_t type,
                    const TensorInfo& info) {
  ggml_context_ptr context = new_context(8);
  ggml_tensor* weight = new_tensor(context.get(), info);
  ggml_backend_buffer_ptr empty(ggml_backend_buft_alloc_buffer(type, 0));
  if (!empty) return false;
  weight->buffer = empty.get();
  ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, info.ne[0], 512);
  ggml_tensor* product = nullptr;
  if (info.ne[2] == 1) {
    product = ggml_mul_mat(context.get(), weight, input);
  } else {
    ggml_tensor* one_each = ggml_reshape_3d(context.get(), input, info.ne[0], 1, 512);
    ggml_tensor* chosen = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 2, 512);
    product = ggml_mul_mat_id(context.get(), weight, one_each, chosen);
  }
  const bool supported = ggml_backend_dev_supports_op(device, product);
  weight->buffer = nullptr;
  return supported;
}

}  // namespace

Weights::Weights(const GgufFile& file, const std::vector<WeightSpec>& specs, bool repack_weights) {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  CHECK(device != nullptr);
  const auto extra_types =
      repack_weights ? extra_buffer_types(device) : std::vector<ggml_backend_buffer_type_t>();

  NamedTensors mapped;
  std::map<ggml_backend_buffer_type_t, NamedTensors> repacked;
  for (const WeightSpec& spec : specs) {
    tensors_[spec.name] = nullptr;
    const std::string& source = spec.source.empty() ? spec.name : spec.source;
    const TensorInfo* info = file.find_tensor(source);
    if (info == nullptr) {
      if (!spec.required) continue;
      fail(ErrorKind::kCorruptFile, "{}: tensor '{}' is missing", file.path(), source);
    }
    check_tensor(file, spec, *info);
    ggml_backend_buffer_type_t best = nullptr;
    for (const auto type : extra_types) {
      if (best == nullptr && spec.multiplied && serves_product(device, type, *info)) best = type;
    }
    if (best != nullptr) {
      repacked[best].emplace_back(spec.name, info);
    } else {
      mapped.emplace_back(spec.name, info);
    }
  }
  map(file, mapped, tensors_);
  for (const auto& [type, tensors] : repacked) {
    repack(tensors, type);
    map(file, tensors, mapped_);
  }
}

void Weights::map(const GgufFile& file, const NamedTensors& tensors,
                  std::unordered_map<std::string, ggml_tensor*>& to) {
  ggml_context_ptr context = new_context(tensors.size());
  // ggml's buffer takes a mutable pointer; nothing writes to weights.
  auto* base = const_cast<std::byte*>(file.bytes().data());
  ggml_backend_buffer_ptr buffer(ggml_backend_cpu_buffer_from_ptr(base, file.bytes().size()));
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (const auto& [name, info] : tensors) {
    ggml_tensor* tensor = new_tensor(context.get(), *info);
    ggml_backend_tensor_alloc(buffer.get(), tensor, const_cast<std::byte*>(info->data));
    to[name] = tensor;
  }
  contexts_.push_back(std::move(context));
  buffers_.push_back(std::move(buffer));
}

void Weights::repack(const NamedTensors& tensors, ggml_backend_buffer_type_t type) {
  ggml_context_ptr context = new_context(tensors.size());
  for (const auto& [name, info] : tensors) tensors_[name] = new_tensor(context.get(), *info);
  ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type));
  if (!buffer)
    fail(ErrorKind::kOutOfMemory, "no memory for {} repacked weight matrices", tensors.size());
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (const auto& [name, info] : tensors) {
    ggml_backend_tensor_set(tensors_[name], info->data, 0, info->n_bytes);
  }
  contexts_.push_back(std::move(context));
  buffers_.push_back(std::move(buffer));
}

ggml_tensor* Weights::get(const std::string& name) const {
  const auto found = tensors_.find(name);
  CHECK(found != tensors_.end());
  return found->second;
}

MatrixWeight Weights::matrix(const std::string& name) const {
  ggml_tensor* best = get(name);
  const auto mapped = mapped_.find(name);
  return {best, mapped != mapped_.end() ? mapped->second : best};
}

}  // namespace ctxzip
