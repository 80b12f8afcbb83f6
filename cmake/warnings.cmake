# Warnings, visibility and sanitizers of ctxzip's own targets; never applied to third-party code.
function(ctxzip_target_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -fvisibility=hidden
    -fvisibility-inlines-hidden -ffp-contract=off)
  if(CTXZIP_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(CTXZIP_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${CTXZIP_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all -O1)
    target_link_options(${target} PUBLIC -fsanitize=${CTXZIP_SANITIZE})
  endif()
endfunction()
