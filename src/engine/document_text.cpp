#include "engine/document_text.h"

#include "core/utf8.h"

namespace ctxzip {

DocumentText normalise_document(std::string_view bytes) {
  DocumentText document;
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const std::string repaired = repair_utf8(bytes, &document.n_replaced);
  document.text.reserve(repaired.size());
  for (size_t at = 0; at < repaired.size(); ++at) {
    if (repaired[at] != '\r') {
      document.text += repaired[at];
    } else if (at + 1 == repaired.size() || repaired[at + 1] != '\n') {
      document.text += '\n';
    }
  }
  while (document.text.ends_with('\n')) document.text.pop_back();
  return document;
}

}  // namespace ctxzip
