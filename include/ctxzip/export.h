#pragma once

#define CTXZIP_API __attribute__((visibility("default")))
