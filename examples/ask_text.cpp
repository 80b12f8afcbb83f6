// ctxzip as a library: zip a text once, keep it in a file, a buffer or a stream, and ask it
// questions.
//   ask_text MODEL.gguf TEXT OUT.ctz QUESTION
#include <ctxzip/context.h>
#include <ctxzip/error.h>
#include <ctxzip/model.h>
#include <ctxzip/session.h>
#include <ctxzip/zip.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ctxzip::Error(ctxzip::ErrorKind::kNotFound, path + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const std::string& model_path, const std::string& text_path, const std::string& out_path,
         const std::string& question) {
  // A handle: copies share the weights, and every thread may use it.
  const ctxzip::Model model = ctxzip::Model::load(model_path);

  // The long part, done once. progress comes on this thread, some times a second; the library
  // itself never prints.
  ctxzip::ZipOptions options;
  options.budget.ratio = 0.3;
  options.progress = [](ctxzip::Stage stage, int64_t done, int64_t total) {
    if (done == total) std::clog << ctxzip::stage_name(stage) << ": done\n";
  };
  const ctxzip::Context zipped = ctxzip::zip(model, read_text(text_path), options);
  const ctxzip::ZipReport& report = zipped.report();
  std::cout << report.context_tokens << " tokens, " << report.kv_bytes_full << " -> "
            << report.kv_bytes_kept << " bytes of cache\n";

  // Three ways to keep it; the bytes are the same.
  zipped.save(out_path);
  const std::vector<std::byte> buffer = zipped.save();
  std::stringstream stream;
  zipped.save(stream);

  // And to have it again, now or in another process: checksums and the model are verified. The file
  // is mapped, so opening costs no copy. A Context is immutable; any number of sessions share it.
  const ctxzip::Context from_file = ctxzip::Context::open(model, out_path);
  const ctxzip::Context from_buffer = ctxzip::Context::open(model, buffer);
  const ctxzip::Context from_stream = ctxzip::Context::open(model, stream);

  // Each ask() starts from the pristine context (chat() would remember). on_text gets whole
  // characters.
  ctxzip::AskOptions ask;
  ask.max_tokens = 48;
  ask.on_text = [](std::string_view piece) {
    std::cout << piece << std::flush;
    return true;
  };
  const ctxzip::Answer answer = ctxzip::Session(from_file).ask(question, ask);
  std::cout << "\n[" << answer.output_tokens << " tokens, "
            << ctxzip::stop_reason_name(answer.stop_reason) << "]\n";

  ask.on_text = nullptr;
  const std::string again = ctxzip::Session(from_buffer).ask(question, ask).text;
  std::cout << "from the buffer: " << (again == answer.text ? "the same answer" : "ANOTHER ANSWER")
            << '\n';

  // Cancelling: set the token from any thread or signal handler; here the callback does it after
  // three pieces. What was said so far is in the answer. (Returning false from on_text would do as
  // well.)
  ctxzip::CancelToken cancel;
  int n_pieces = 0;
  ask.cancel = &cancel;
  ask.on_text = [&](std::string_view) {
    if (++n_pieces == 3) cancel.cancel();
    return true;
  };
  const ctxzip::Answer partial = ctxzip::Session(from_stream).ask(question, ask);
  std::cout << "cancelled: " << ctxzip::stop_reason_name(partial.stop_reason) << " after "
            << partial.output_tokens << " tokens\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: ask_text MODEL.gguf TEXT OUT.ctz QUESTION\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argv[4]);
  } catch (const ctxzip::Error& error) {  // what failed, what was expected, what to do
    std::fprintf(stderr, "ask_text: %s\n", error.what());
    return 1;
  }
  return 0;
}
