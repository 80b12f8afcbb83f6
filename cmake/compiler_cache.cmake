# The llama.cpp tree takes minutes to compile: reuse objects between build folders where ccache is there.
find_program(CTXZIP_CCACHE ccache)
if(CTXZIP_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CTXZIP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CTXZIP_CCACHE})
endif()
