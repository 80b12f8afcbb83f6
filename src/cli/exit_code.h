// Exit codes of every command.
#pragma once

namespace ctxzip::cli {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // content and operations: files, models, memory
constexpr int kExitUsage = 2;   // flags and arguments
// 128 + the signal's number for a run that a signal stopped: 130 for Ctrl-C.
constexpr int kExitSignalBase = 128;

}  // namespace ctxzip::cli
