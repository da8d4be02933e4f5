#include "base/wire/workspace_path.h"

#include <catch2/catch.hpp>

#include "base/error.h"

namespace moorage::base {

TEST_CASE("a path in the workspace is found in each spelling of it") {
  for (const char* typed : {"src/a", "./src/a", "src/a/", "src//a", "src/./a/.", "/workspace/src/a",
                            "/workspace//src/a/", "././src/a"}) {
    INFO(typed);
    CHECK(workspace_path(typed) == "src/a");
  }
  for (const char* typed : {".", "./", "/workspace", "/workspace/"})
    CHECK(workspace_path(typed).empty());
  CHECK(workspace_path("...") == "...");
  CHECK(workspace_path("workspace/a") == "workspace/a");
  CHECK(workspace_path(" \n\xff") == " \n\xff");
}

TEST_CASE("a path outside the workspace is refused by name") {
  for (const char* typed : {"", "..", "../x", "src/../..", "src/..", "/", "/etc", "/workspaces/a",
                            "/workspace/../etc", "//workspace/a"}) {
    INFO(typed);
    CHECK_THROWS_AS(workspace_path(typed), Error);
  }
  try {
    workspace_path("../x\n");
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid_argument);
    CHECK(error.message() == "'../x\\n' is not a path in /workspace");
  }
}

}  // namespace moorage::base
