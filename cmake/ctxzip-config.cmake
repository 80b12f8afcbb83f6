include(${CMAKE_CURRENT_LIST_DIR}/ctxzip-targets.cmake)
