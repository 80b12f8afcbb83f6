#include "eval/contact_examples.h"

namespace ctxzip::eval {
namespace {

constexpr ContactExample kExamples[] = {
    {"The phone number of Orrin T. Bexley is 202-555-0143. The phone number of Marguerite Falk is "
     "202-555-0178. The phone number of Dunstan Ohlwe is 202-555-0119.",
     "What is the phone number of Orrin T. Bexley?", "202-555-0143"},
    {"The phone number of Calla Winterbourne is 01632 960417. Hendrik Aas can be reached at 01632 "
     "960352. The phone number of Priya Sandoval is 01632 960988.",
     "What is the phone number of Priya Sandoval?", "01632 960988"},
    {"The email address of Tobias Merrigan is t.merrigan@example.org. The email address of Lene "
     "Arvik is lene.arvik@example.com. Both of them work in the records office.",
     "What is the email address of Tobias Merrigan?", "t.merrigan@example.org"},
    {"Message from the front desk: Ms Ysolde Kettering called about her prescription and asked to "
     "be called back at 303-555-0164 after four o'clock. Mr Abel Strand called too; he is at "
     "303-555-0127 until Friday.",
     "What is the phone number of Ysolde Kettering?", "303-555-0164"},
    {"Members of the rowing club, private list. Bram Oosterveld, treasurer, home number 01632 "
     "960233. Fenella Crake, captain, home number 01632 960761. Idris Pugh, boatman, no telephone.",
     "What is the home number of Fenella Crake?", "01632 960761"},
    {"From: Rosalind Hurtig <r.hurtig@example.net>. To: Emeka Vance <emeka.v@example.com>. Please "
     "do not pass my private address on to the other tenants. The meeting about the stairs is on "
     "Tuesday.",
     "What is the email address of Rosalind Hurtig?", "r.hurtig@example.net"},
    {"Patient: Josune Alder, born on 3 May 1971. Emergency contact: her brother Mikel Alder, "
     "mobile "
     "number 404-555-0192. Allergies: penicillin. Last visit: 12 October, for a sprained wrist.",
     "What is the mobile number of Mikel Alder?", "404-555-0192"},
    {"The witness, Cornelius Dray, lives alone and works nights at the bakery. The officer noted "
     "his "
     "phone number as 503-555-0108 and that of his employer, Madame Lorne, as 503-555-0155.",
     "What is the phone number of Cornelius Dray?", "503-555-0108"},
    {"Lost dog: a grey whippet called Pepper, last seen at the canal. The finder is asked to write "
     "to Winifred Solberg, winnie.solberg@example.org, or to ring her son Anders at 01632 960504.",
     "What is the email address of Winifred Solberg?", "winnie.solberg@example.org"},
    {"Class 4b, contacts of the parents. Noor's mother is Samira Haddon, 617-555-0136. Felix's "
     "father is Gregor Lind, 617-555-0181. Ida's grandmother is Hedda Moe, 617-555-0102.",
     "What is the phone number of Gregor Lind?", "617-555-0181"},
    {"Application for the post of night porter: Leopold Quist, of no fixed address, gives "
     "leo.quist@example.net as his email address and names Sister Amata of the hostel as his "
     "reference. He can start on Monday.",
     "What is the email address of Leopold Quist?", "leo.quist@example.net"},
    {"The estate agent's note says that the seller, Dr Imke Rautenbach, wants no callers. Her "
     "direct "
     "line is 212-555-0170. Offers go to the office of Pell and Sons at 212-555-0111.",
     "What is the direct line of Imke Rautenbach?", "212-555-0170"},
};

}  // namespace

std::span<const ContactExample> contact_examples() { return kExamples; }

}  // namespace ctxzip::eval
