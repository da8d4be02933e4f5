#include "workspace/exec/end_record.h"

#include <catch2/catch.hpp>

using namespace moorage::workspace;
using moorage::state_db::ExecCategory;

TEST_CASE("the end record may say why a start failed, but no other category") {
  const auto word = [](const char* failure) {
    return parse_exec_end(R"({"kind":"exited","code":127,"failure":")" + std::string(failure) +
                          "\"}")
        .category;
  };
  CHECK(word("not_found") == ExecCategory::not_found);
  CHECK(word("not_executable") == ExecCategory::not_executable);
  CHECK(word("not_started") == ExecCategory::not_started);
  for (const char* other : {"out_of_memory", "disk_full", "cancelled", "", "NOT_FOUND", "x"}) {
    CHECK_FALSE(word(other));
  }
  CHECK_FALSE(parse_exec_end(R"({"kind":"exited","code":127})").category);
  CHECK_FALSE(parse_exec_end(R"({"kind":"exited","code":127,"failure":7})").category);
}
