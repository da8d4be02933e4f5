# GCC takes precompiled headers only where the same macros are defined.
function(use_definitions name)
  target_compile_definitions(${name} PRIVATE $<TARGET_PROPERTY:Boost::json,INTERFACE_COMPILE_DEFINITIONS>
    $<TARGET_PROPERTY:Boost::container,INTERFACE_COMPILE_DEFINITIONS>)
endfunction()

# What most sources include, parsed once for all layers.
file(CONFIGURE OUTPUT empty.cc CONTENT "")
add_library(layer_headers OBJECT ${CMAKE_BINARY_DIR}/empty.cc)
target_link_libraries(layer_headers PRIVATE moorage_options)
use_definitions(layer_headers)
target_precompile_headers(layer_headers PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)

# layer(name SOURCES ... [USES layer...] [LIBS library...])
# A layer is a folder, a static library and a namespace. Each layer has its own include view (a folder with one link,
# to the layer), so only layers with state_db in USES can include "state_db/store.h": a wrong-way include does not
# compile. LIBS stay private to the layer.
function(layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS" ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${view}/${name} SYMBOLIC)
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${view})
  target_link_libraries(${name} PUBLIC ${ARG_USES} PRIVATE moorage_options ${ARG_LIBS})
  use_definitions(${name})
  target_precompile_headers(${name} REUSE_FROM layer_headers)
  join_sources(${name})
endfunction()

function(test_options name)
  use_definitions(${name})
  target_compile_options(${name} PRIVATE -O0 -g0)  # compile time matters more than run time
  if(MOORAGE_SANITIZE)
    target_compile_definitions(${name} PRIVATE MOORAGE_SANITIZED)
  endif()
endfunction()

# moorage_test(name SOURCES ... USES layer... [LIBS library...] [TIMEOUT seconds])
# A Catch2 binary with one ctest entry.
function(moorage_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;USES;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  math(EXPR timeout "${ARG_TIMEOUT} * ${MOORAGE_PATIENCE}")
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:catch_main>)
  target_link_libraries(${name} PRIVATE moorage_options ${ARG_USES} ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  test_options(${name})
  target_precompile_headers(${name} REUSE_FROM test_headers)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
endfunction()
