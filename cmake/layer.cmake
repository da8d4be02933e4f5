# layer(name SOURCES ... [USES layer...] [LIBS library...] [PRECOMPILE header...])
# A layer is a folder, a static library and a namespace. Each layer is seen through an include view
# of its own (a folder that holds one link, to the layer), so "state_db/store.h" can only be included by those who
# name state_db in USES: an include the wrong way does not compile. LIBS stay private to the layer.
# PRECOMPILE: headers to parse once for all its sources, where that takes longer than the sources themselves.
function(layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS;PRECOMPILE" ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${view}/${name} SYMBOLIC)
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${view})
  target_link_libraries(${name} PUBLIC ${ARG_USES} PRIVATE moorage_options ${ARG_LIBS})
  if(ARG_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE ${ARG_PRECOMPILE})
  endif()
endfunction()

# moorage_test(name SOURCES ... USES layer... [LIBS library...] [TIMEOUT seconds])
# A Catch2 binary, one ctest entry.
function(moorage_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;USES;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  math(EXPR timeout "${ARG_TIMEOUT} * ${MOORAGE_PATIENCE}")
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:catch_main>)
  target_link_libraries(${name} PRIVATE moorage_options ${ARG_USES} ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE -O0)  # a test is compiled more often than it is waited for
  if(MOORAGE_SANITIZE)
    target_compile_definitions(${name} PRIVATE MOORAGE_SANITIZED)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
endfunction()
