// Short texts with contact details of people who do not exist, and questions that ask for one.
#pragma once

#include <span>

namespace ctxzip::eval {

struct ContactExample {
  const char* text;
  const char* question;
  const char* contact;  // what the text says: a telephone number or an e-mail address
};

// Numbers of ranges that no one is given (555-01xx, 01632 960xxx), addresses of example domains.
std::span<const ContactExample> contact_examples();

}  // namespace ctxzip::eval
