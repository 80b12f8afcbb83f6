#include "eval/word_list.h"

#include <set>

namespace ctxzip::eval {
namespace {

constexpr const char* kNouns[] = {
    "anchor",  "anvil",   "apple",  "arrow",    "barrel",  "basket",  "beacon", "bell",
    "blanket", "bottle",  "bridge", "broom",    "bucket",  "button",  "cabin",  "candle",
    "carpet",  "cart",    "chair",  "chimney",  "clock",   "compass", "copper", "cradle",
    "crate",   "curtain", "drum",   "engine",   "fence",   "ferry",   "flute",  "fountain",
    "garden",  "gate",    "glove",  "hammer",   "harbour", "harp",    "helmet", "hinge",
    "jacket",  "kettle",  "kite",   "ladder",   "lantern", "lemon",   "lever",  "loom",
    "magnet",  "map",     "marble", "mill",     "mirror",  "needle",  "oar",    "orchard",
    "oven",    "paddle",  "pebble", "pencil",   "pepper",  "piano",   "pillow", "pipe",
    "plough",  "pocket",  "pulley", "quilt",    "raft",    "ribbon",  "rope",   "saddle",
    "sail",    "scale",   "scarf",  "shovel",   "silver",  "sledge",  "spoon",  "stable",
    "statue",  "stove",   "table",  "teapot",   "tent",    "thimble", "ticket", "timber",
    "tower",   "trumpet", "tunnel", "umbrella", "valley",  "violin",  "wagon",  "walnut",
    "wheel",   "whistle", "window", "workshop"};

constexpr const char* kAdjectives[] = {
    "amber",   "ancient", "bitter",  "bold",    "brass",   "bright", "brisk",   "broad",  "calm",
    "careful", "clever",  "crimson", "crooked", "curious", "damp",   "distant", "dusty",  "eager",
    "early",   "empty",   "faded",   "famous",  "fierce",  "foggy",  "frosty",  "gentle", "gilded",
    "golden",  "grand",   "green",   "heavy",   "hidden",  "hollow", "humble",  "icy",    "idle",
    "iron",    "jolly",   "keen",    "late",    "lively",  "lonely", "loud",    "mellow", "modest",
    "narrow",  "noisy",   "odd",     "pale",    "patient", "plain",  "polite",  "proud",  "quiet",
    "rapid",   "rusty",   "scarlet", "shallow", "sharp",   "silent", "simple",  "sleepy", "slender",
    "steep",   "striped", "sturdy",  "sunny",   "tall",    "tidy",   "violet",  "warm",   "weary",
    "wide",    "wild",    "wooden",  "young"};

constexpr const char* kTowns[] = {
    "Aldermoor", "Brackwell",   "Caldhaven",  "Dunmere",    "Eskbridge",  "Farrowgate",
    "Glenholt",  "Harrowick",   "Istermouth", "Jessenford", "Kettleby",   "Lorndale",
    "Marrowby",  "Nettlecombe", "Oxenshaw",   "Pellworth",  "Quarrenton", "Ravensey",
    "Stellmoor", "Thornwick",   "Ulverdale",  "Vesperton",  "Windlecot",  "Yarrowfield"};

constexpr const char* kPeople[] = {
    "Agnes Thorne",  "Bruno Castel",    "Clara Venn",    "Dmitri Halloran", "Edda Marsh",
    "Felix Obrecht", "Greta Lindqvist", "Hugo Pereira",  "Ines Calloway",   "Jonas Pell",
    "Katya Brandt",  "Lionel Ashby",    "Mirela Stoica", "Nils Bergstrom",  "Odette Farrow",
    "Pavel Kostka",  "Queenie Ross",    "Rafael Duarte", "Sigrid Holm",     "Tomas Veldt",
    "Ursula Kane",   "Viktor Amsel",    "Wanda Pryce",   "Yusuf Demir"};

}  // namespace

WordList nouns() { return kNouns; }
WordList adjectives() { return kAdjectives; }
WordList towns() { return kTowns; }
WordList people() { return kPeople; }

std::string word_pair(Draw& draw) {
  std::string word = draw.one_of(kAdjectives);
  return word + "-" + draw.one_of(kNouns);
}

std::string coined_word(Draw& draw) {
  constexpr std::string_view kConsonants = "bdfgklmnprstvz";
  constexpr std::string_view kVowels = "aeiou";
  std::string word;
  for (int syllable = 0; syllable < 3; ++syllable) {
    word += draw.one_of(kConsonants);
    word += draw.one_of(kVowels);
  }
  return word;
}

std::string seven_digits(Draw& draw) { return std::to_string(draw.between(1'000'000, 9'999'999)); }

std::string uuid(Draw& draw) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (const int group : {8, 4, 4, 4, 12}) {
    if (!id.empty()) id += '-';
    for (int digit = 0; digit < group; ++digit) id += draw.one_of(kDigits);
  }
  return id;
}

std::vector<std::string> distinct(size_t n, Draw& draw, std::string (*make)(Draw&)) {
  std::vector<std::string> all;
  std::set<std::string> known;
  while (all.size() < n) {
    std::string next = make(draw);
    if (known.insert(next).second) all.push_back(std::move(next));
  }
  return all;
}

}  // namespace ctxzip::eval
