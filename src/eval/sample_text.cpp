#include "eval/sample_text.h"

#include <fmt/format.h>

namespace ctxzip::eval {

std::string sample_text() {
  constexpr const char* kPeople[] = {"Anna Breck", "Tom Hale", "Mila Storm", "Jon Vance",
                                     "Ida Roe"};
  constexpr const char* kThings[] = {"a brass lamp", "forty slates",      "the north boat",
                                     "two clocks",   "a map of the fell", "the old ledger",
                                     "nine ropes"};
  constexpr const char* kPlaces[] = {"Kettle Point", "Ostwick", "Harrow Fell", "Lindhaven"};
  std::string text;
  for (int entry = 0; entry < 400; ++entry) {
    text += fmt::format("Entry {}: on day {} {} brought {} to {} and paid {} crowns for it. ",
                        entry, entry * 7 % 365, kPeople[entry * 3 % 5], kThings[entry * 5 % 7],
                        kPlaces[entry * 11 % 4], 3 + entry * 37 % 191);
  }
  return text;
}

}  // namespace ctxzip::eval
