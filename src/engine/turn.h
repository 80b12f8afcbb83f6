// What a user's turn looks like to the model.
#pragma once

#include <string_view>
#include <vector>

#include "engine/context_state.h"
#include "engine/turns.h"

namespace ctxzip {

// Token ids of a turn after the context, or after earlier turns, up to where the answer starts.
// Throws Error{kInvalidArgument} if there are none.
std::vector<Token> turn_prompt(const detail::ContextState& context, std::string_view text,
                               bool later_turn, bool think);

// Throws Error{kTooLong} if the prompt does not fit behind the turns there are.
void check_room(const Turns& turns, const std::vector<Token>& prompt);

}  // namespace ctxzip
