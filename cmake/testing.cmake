find_package(GTest REQUIRED)
include(GoogleTest)

# Unit tests that also run under sanitizers are built by this target.
add_custom_target(sanitized_tests)

# ctxzip_test(NAME SOURCES ... [WHOLE filter] [SANITIZE filter] [THREADS n])
# Registers a GoogleTest program, one ctest entry a test. WHOLE: the tests it matches share costly
# set-up and run as one entry. In a build with sanitizers only programs with SANITIZE count, and of
# them the tests it matches (those without a real model). THREADS: cores that a test of it uses.
function(ctxzip_test name)
  cmake_parse_arguments(arg "" "WHOLE;SANITIZE;THREADS" "SOURCES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE test_support)
  ctxzip_target_options(${name})
  target_compile_options(${name} PRIVATE -O1)
  if(NOT arg_THREADS)
    set(arg_THREADS 1)
  endif()
  if(CTXZIP_SANITIZE)
    if(arg_SANITIZE)
      add_dependencies(sanitized_tests ${name})
      add_test(NAME sanitized_${name} COMMAND ${name} "--gtest_filter=${arg_SANITIZE}")
      set_tests_properties(sanitized_${name} PROPERTIES LABELS sanitized TIMEOUT 1200
        PROCESSORS ${arg_THREADS})
    endif()
    return()
  endif()
  if(arg_WHOLE)
    add_test(NAME ${name}_whole COMMAND ${name} "--gtest_filter=${arg_WHOLE}")
    set_tests_properties(${name}_whole PROPERTIES PROCESSORS ${arg_THREADS})
    if(NOT arg_WHOLE STREQUAL "*")
      gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_FILTER "-${arg_WHOLE}"
        PROPERTIES PROCESSORS ${arg_THREADS})
    endif()
  else()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES PROCESSORS ${arg_THREADS})
  endif()
endfunction()
