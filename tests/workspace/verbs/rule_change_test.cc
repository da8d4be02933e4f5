#include "workspace/verbs/rule_change.h"

#include <catch2/catch.hpp>

#include "thrown_code.h"

using namespace moorage;
using workspace::RuleChange;

namespace {

using Words = std::vector<std::string>;

Words after(Words words, const RuleChange& change) {
  workspace::check_rules(change);
  workspace::apply_rules(change, words);
  return words;
}

}  // namespace

TEST_CASE("the last request about a whole host counts") {
  CHECK(after({"allow a.com"}, {.deny = {"a.com"}}) == Words{"deny a.com"});
  CHECK(after({"deny a.com", "deny a.com POST"}, {.allow = {"a.com"}}) == Words{"allow a.com"});
  CHECK(after({"allow a.com GET", "allow a.com:22"}, {.deny = {"a.com"}}) == Words{"deny a.com"});
  CHECK(after({"allow a.com"}, {.allow = {"a.com:22"}}) == Words{"allow a.com", "allow a.com:22"});
}

TEST_CASE("methods of one host add up, and a later rule limits or widens an earlier one") {
  CHECK(after({"allow a.com GET"}, {.allow = {"a.com POST"}}) == Words{"allow a.com GET,POST"});
  CHECK(after({"allow a.com GET"}, {.allow = {"a.com"}}) == Words{"allow a.com"});
  CHECK(after({"allow a.com"}, {.allow = {"a.com GET"}}) == Words{"allow a.com GET"});
  CHECK(after({"allow a.com GET"}, {.allow = {"https://a.com/x POST"}}) ==
        Words{"allow a.com GET", "allow https://a.com/x POST"});
}

TEST_CASE("a refused method is taken out of what is allowed, and the reverse") {
  CHECK(after({"allow a.com GET,POST"}, {.deny = {"a.com POST"}}) ==
        Words{"allow a.com GET", "deny a.com POST"});
  CHECK(after({"allow a.com"}, {.deny = {"a.com POST"}}) ==
        Words{"allow a.com", "deny a.com POST"});
  CHECK(after({"allow a.com", "deny a.com POST"}, {.allow = {"a.com POST,PUT"}}) ==
        Words{"allow a.com"});
  CHECK(after({"deny a.com"}, {.allow = {"a.com GET"}}) == Words{"deny a.com", "allow a.com GET"});
  CHECK(after({"deny https://a.com/x POST"}, {.allow = {"https://a.com/x"}}) ==
        Words{"allow https://a.com/x"});
}

TEST_CASE("rules are forgotten by their host, or one by one") {
  const Words all{"allow a.com GET", "allow https://a.com/x POST", "allow b.com"};
  CHECK(after(all, {.forget = {"a.com"}}) == Words{"allow b.com"});
  CHECK(after(all, {.forget = {"https://a.com/x"}}) == Words{"allow a.com GET", "allow b.com"});
  CHECK(after(all, {.forget = {"a.com GET"}}) ==
        Words{"allow https://a.com/x POST", "allow b.com"});
  CHECK(code_thrown_by([&] { after(all, {.forget = {"c.com"}}); }) == Code::not_found);
  CHECK(code_thrown_by([&] { after(all, {.forget = {"a.com PUT"}}); }) == Code::not_found);
}
