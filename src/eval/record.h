// What a run writes down: one record for each (context, question, method, ratio).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ctxzip::eval {

using Json = nlohmann::ordered_json;

struct RecordKey {
  std::string context = {};
  std::string question = {};
  std::string method = {};
  double ratio = 1;
  bool operator==(const RecordKey&) const = default;
};

// Prefill, score and compact are of the whole context and repeat in each of its records.
struct RecordTimes {
  double prefill_s = 0;
  double score_s = 0;  // of this method
  double compact_s = 0;
  double prompt_s = 0;
  double decode_s = 0;
  int64_t n_threads = 0;
};

struct AnswerRecord {
  RecordKey key;
  std::string part = {};  // of a mixed task; empty elsewhere
  std::string output = {};
  std::vector<std::string> gold = {};
  std::vector<double> scores = {};  // in the order of the task's metrics
  int64_t context_tokens = 0;
  int64_t pairs_kept = 0;
  int64_t pairs_total = 0;
  int64_t kv_bytes = 0;
  int64_t kv_bytes_full = 0;
  int64_t output_tokens = 0;
  std::string stop_reason = {};
  RecordTimes times = {};
};

// One line without its end; bytes that are not UTF-8 become U+FFFD.
std::string to_line(const Json& json);
Json to_json(const AnswerRecord& record, const std::vector<std::string>& metrics);
// Throws nlohmann::json::exception when a field is missing or of another type.
AnswerRecord record_from_json(const Json& json, const std::vector<std::string>& metrics);

}  // namespace ctxzip::eval
