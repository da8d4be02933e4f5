#include "daemon/arguments.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/error.h"

using namespace moorage;
using namespace moorage::daemon;

namespace {

Arguments parse(std::vector<std::string> words) {
  words.insert(words.begin(), "mooraged");
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  return parse_arguments(static_cast<int>(pointers.size()), pointers.data());
}

}  // namespace

TEST_CASE("without arguments the daemon serves with the default file") {
  const Arguments arguments = parse({});
  CHECK(arguments.action == Arguments::Action::serve);
  CHECK_FALSE(arguments.config_file);
}

TEST_CASE("--set takes a setting and any value, --config a file") {
  const Arguments arguments =
      parse({"--set", "api.socket=/a=b", "--config", "/x", "--foreground", "--show-config"});
  CHECK(arguments.overrides.at("api.socket") == "/a=b");
  CHECK(arguments.config_file == "/x");
  CHECK(arguments.action == Arguments::Action::show_config);
}

TEST_CASE("unknown and incomplete arguments are refused") {
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--bogus"},
                                              {"--config"},
                                              {"--set", "novalue"},
                                              {"--set", "=x"},
                                              {"serve"}}) {
    CHECK_THROWS_AS(parse(bad), base::Error);
  }
}
