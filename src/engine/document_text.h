// What a document's bytes become before they are tokenised.
#pragma once

#include <string>
#include <string_view>

namespace ctxzip {

struct DocumentText {
  std::string text;
  size_t n_replaced = 0;  // ill-formed UTF-8 parts that became U+FFFD
};

// The rule that makes one document out of the forms an editor may save it in: a byte-order mark is
// dropped, CRLF and CR become LF, newlines at the very end are dropped, UTF-8 is repaired.
DocumentText normalise_document(std::string_view bytes);

}  // namespace ctxzip
