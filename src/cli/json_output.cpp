#include "cli/json_output.h"

#include "cli/standard_output.h"

namespace ctxzip::cli {
namespace {

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

void print_json(const Json& object) {
  print_out(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

double kept_ratio(const ZipReport& report) {
  if (report.pairs_total == 0) return 1;
  return static_cast<double>(report.pairs_kept) / static_cast<double>(report.pairs_total);
}

Json report_json(const ZipReport& report) {
  return {
      {"method", report.method},
      {"allocation", report.allocation},
      {"recon_attention", report.recon_attention},
      {"schedule", report.schedule},
      {"chunk_tokens", report.chunk_tokens},
      {"row_type", report.row_type},
      {"context_tokens", report.context_tokens},
      {"prefix_tokens", report.prefix_tokens},
      {"pairs_total", report.pairs_total},
      {"pairs_kept", report.pairs_kept},
      {"ratio", kept_ratio(report)},
      {"kv_bytes_full", report.kv_bytes_full},
      {"kv_bytes_kept", report.kv_bytes_kept},
      {"kv_bytes_window", report.kv_bytes_window},
      {"delta_nll", or_null(report.delta_nll)},
      {"delta_nll_probe", or_null(report.delta_nll_probe)},
  };
}

Json heads_json(const HeadCounts& heads) {
  Json kept = Json::array();
  const auto n_layer = static_cast<int64_t>(heads.layers.size());
  for (int64_t layer = 0; layer < n_layer; ++layer) {
    const auto first = heads.kept.begin() + layer * heads.n_kv_head;
    kept.push_back(Json(std::vector<int64_t>(first, first + heads.n_kv_head)));
  }
  return {{"layers", heads.layers}, {"n_kv_head", heads.n_kv_head}, {"kept", kept}};
}

Json answer_json(const std::string& question, const Answer& answer) {
  const double tokens_per_s =
      answer.decode_s > 0 ? static_cast<double>(answer.output_tokens) / answer.decode_s : 0;
  return {
      {"question", question},
      {"answer", answer.text},
      {"prompt_tokens", answer.prompt_tokens},
      {"context_tokens_prefilled", answer.context_tokens_prefilled},
      {"output_tokens", answer.output_tokens},
      {"tokens_per_s", tokens_per_s},
      {"stop_reason", stop_reason_name(answer.stop_reason)},
  };
}

Json model_json(const ModelInfo& info) {
  return {
      {"path", info.path},
      {"model", info.name},
      {"architecture", info.architecture},
      {"model_fingerprint", info.fingerprint},
      {"n_layer", info.n_layer},
      {"n_local_layer", info.n_local_layer},
      {"n_recurrent_layer", info.n_recurrent_layer},
      {"window", info.window},
      {"n_embd", info.n_embd},
      {"n_head", info.n_head},
      {"n_kv_head", info.n_kv_head},
      {"head_dim", info.head_dim},
      {"n_vocab", info.n_vocab},
      {"n_ctx_train", info.n_ctx_train},
      {"n_parameters", info.n_parameters},
      {"file_bytes", info.file_bytes},
      {"kv_bytes_per_token", info.kv_bytes_per_token},
      {"kv_bytes_window", info.kv_bytes_window},
      {"state_bytes", info.state_bytes},
      {"has_chat_template", info.has_chat_template},
      {"weight_types", info.weight_types},
  };
}

}  // namespace ctxzip::cli
