#include "eval/record.h"

namespace ctxzip::eval {

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const AnswerRecord& record, const std::vector<std::string>& metrics) {
  Json scores = Json::object();
  for (size_t at = 0; at < metrics.size(); ++at) scores[metrics[at]] = record.scores.at(at);
  const RecordTimes& times = record.times;
  Json json = {
      {"record", "answer"},
      {"context", record.key.context},
      {"question", record.key.question},
      {"method", record.key.method},
      {"ratio", record.key.ratio},
      {"output", record.output},
      {"gold", record.gold},
      {"scores", scores},
      {"context_tokens", record.context_tokens},
      {"pairs_kept", record.pairs_kept},
      {"pairs_total", record.pairs_total},
      {"kv_bytes", record.kv_bytes},
      {"kv_bytes_full", record.kv_bytes_full},
      {"output_tokens", record.output_tokens},
      {"stop_reason", record.stop_reason},
      {"times",
       {{"prefill_s", times.prefill_s},
        {"score_s", times.score_s},
        {"compact_s", times.compact_s},
        {"prompt_s", times.prompt_s},
        {"decode_s", times.decode_s},
        {"n_threads", times.n_threads}}},
  };
  if (!record.part.empty()) json["part"] = record.part;
  return json;
}

AnswerRecord record_from_json(const Json& json, const std::vector<std::string>& metrics) {
  AnswerRecord record;
  json.at("context").get_to(record.key.context);
  json.at("question").get_to(record.key.question);
  json.at("method").get_to(record.key.method);
  json.at("ratio").get_to(record.key.ratio);
  record.part = json.value("part", "");
  json.at("output").get_to(record.output);
  json.at("gold").get_to(record.gold);
  for (const std::string& metric : metrics) {
    record.scores.push_back(json.at("scores").at(metric).get<double>());
  }
  json.at("context_tokens").get_to(record.context_tokens);
  json.at("pairs_kept").get_to(record.pairs_kept);
  json.at("pairs_total").get_to(record.pairs_total);
  json.at("kv_bytes").get_to(record.kv_bytes);
  json.at("kv_bytes_full").get_to(record.kv_bytes_full);
  json.at("output_tokens").get_to(record.output_tokens);
  json.at("stop_reason").get_to(record.stop_reason);
  const Json& times = json.at("times");
  times.at("prefill_s").get_to(record.times.prefill_s);
  times.at("score_s").get_to(record.times.score_s);
  times.at("compact_s").get_to(record.times.compact_s);
  times.at("prompt_s").get_to(record.times.prompt_s);
  times.at("decode_s").get_to(record.times.decode_s);
  times.at("n_threads").get_to(record.times.n_threads);
  return record;
}

}  // namespace ctxzip::eval
