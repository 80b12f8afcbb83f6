// What kind of place a stream goes to.
#pragma once

namespace ctxzip::cli {

// True when the file descriptor is a terminal that understands cursor control.
bool is_terminal(int fd);
// The same, and the user did not ask for plain output with NO_COLOR.
bool wants_colour(int fd);
int terminal_columns(int fd);

}  // namespace ctxzip::cli
