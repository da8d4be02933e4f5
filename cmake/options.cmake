set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# -g1 keeps backtraces; full debug information doubles the time of a build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
# What is packaged gets the checks of Debian's own packages: all of it reads hostile input.
set(hardened "-D_FORTIFY_SOURCE=2 -fstack-protector-strong")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 ${hardened}")
set(CMAKE_C_FLAGS_RELEASE "-O2 ${hardened}")
set(CMAKE_EXE_LINKER_FLAGS_RELEASE "-Wl,-z,relro,-z,now")
# Debug is what the sanitizers are built as: at -O0 their tests take twice as long.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Of programs that are without a sanitizer in every build; of all others moorage_options.
add_library(moorage_plain_options INTERFACE)
target_compile_options(moorage_plain_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum
  $<$<BOOL:${MOORAGE_WERROR}>:-Werror>)
# assert() guards programmer errors in every build type.
target_compile_options(moorage_plain_options INTERFACE -UNDEBUG)
target_compile_definitions(moorage_plain_options INTERFACE MOORAGE_VERSION="${PROJECT_VERSION}" _GNU_SOURCE)
add_library(moorage_options INTERFACE)
target_link_libraries(moorage_options INTERFACE moorage_plain_options)
if(MOORAGE_SANITIZE)
  # What is found ends the program: the warden's own words reach nobody.
  target_compile_options(moorage_options INTERFACE -fsanitize=${MOORAGE_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_definitions(moorage_options INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(moorage_options INTERFACE -fsanitize=${MOORAGE_SANITIZE})
endif()

if(MOORAGE_FUZZ)
  # The build is most of what a short run costs: -O0, and without the checks that cost most and find what
  # the address sanitizer finds too, it takes a third of the time.
  target_compile_options(moorage_options INTERFACE -fsanitize=fuzzer-no-link -O0
    -fno-sanitize=alignment,function,null,object-size,vptr)
endif()

# Of a test's time limit: sanitized code is several times slower.
set(MOORAGE_PATIENCE 1)
if(MOORAGE_SANITIZE)
  set(MOORAGE_PATIENCE 5)
endif()

# All programs in one folder: the daemon finds moorage-launch and moorage-warden beside itself.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
