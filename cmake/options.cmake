set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# -g1 keeps backtraces; full debug information doubles the build time.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
# Packaged programs read hostile input, so they get the hardening of Debian's own packages.
set(hardened "-D_FORTIFY_SOURCE=2 -fstack-protector-strong")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 ${hardened}")
set(CMAKE_C_FLAGS_RELEASE "-O2 ${hardened}")
set(CMAKE_EXE_LINKER_FLAGS_RELEASE "-Wl,-z,relro,-z,now")
# For the check and the sanitizers: -O2 takes half as long again to compile. At -O0 tests with a sanitizer take twice as
# long as at -O1.
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1")

if(MOORAGE_UNITY)
  add_link_options(-Wl,--gc-sections)
endif()

# GCC collects its garbage many times in each source; without that it is a tenth faster and stays below 500 MB.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=500000>)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# For programs without a sanitizer in every build; all others use moorage_options.
add_library(moorage_plain_options INTERFACE)
target_compile_options(moorage_plain_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum
  $<$<BOOL:${MOORAGE_WERROR}>:-Werror>)
# assert() catches programmer errors in every build type.
target_compile_options(moorage_plain_options INTERFACE -UNDEBUG)
target_compile_definitions(moorage_plain_options INTERFACE MOORAGE_VERSION="${PROJECT_VERSION}" _GNU_SOURCE)
add_library(moorage_options INTERFACE)
target_link_libraries(moorage_options INTERFACE moorage_plain_options)
if(MOORAGE_SANITIZE)
  # A finding ends the program, as nobody reads the warden's own output.
  target_compile_options(moorage_options INTERFACE -fsanitize=${MOORAGE_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_definitions(moorage_options INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(moorage_options INTERFACE -fsanitize=${MOORAGE_SANITIZE})
endif()

if(MOORAGE_FUZZ)
  # The build dominates a short run: at -O0, without the expensive checks that the address sanitizer covers,
  # it takes a third of the time.
  target_compile_options(moorage_options INTERFACE -fsanitize=fuzzer-no-link -O0
    -fno-sanitize=alignment,function,null,object-size,vptr)
endif()

# Factor for a test's time limit: sanitized code is several times slower.
set(MOORAGE_PATIENCE 1)
if(MOORAGE_SANITIZE)
  set(MOORAGE_PATIENCE 5)
endif()

# All programs are in one folder: the daemon looks for the programs that it starts there.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
