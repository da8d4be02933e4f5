#include "cli/client/json.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage::cli;

TEST_CASE("a missing field reads as the fallback") {
  const Json json = Json::parse(R"({"a":{"b":"x","n":5,"s":"77","no":null},"l":[1,"two"]})");
  CHECK(json.text("a.b") == "x");
  CHECK(json.text("a.n") == "5");
  CHECK(json.number("a.s") == 77);
  CHECK(json.text("a.c.d", "none") == "none");
  CHECK(json.text("a.no", "none") == "none");
  CHECK_FALSE(json.has("a.no"));
  CHECK(json.texts("l") == std::vector<std::string>{"1", "two"});
  CHECK(json.items("a").empty());
  CHECK(Json().text("x", "y") == "y");
}

TEST_CASE("a number beyond int64 is clamped") {
  const Json json = Json::parse(R"([22222222222222222208, -1e300, 1e19, 2.5])");
  CHECK(json.items()[0].number() == INT64_MAX);
  CHECK(json.items()[1].number() == INT64_MIN);
  CHECK(json.items()[2].number() == INT64_MAX);
  CHECK(json.items()[3].number() == 2);
}

TEST_CASE("a place keeps its document alive") {
  Json inner;
  {
    inner = Json::parse(R"({"deep":{"er":["value that is long enough to live on the heap"]}})")
                .at("deep");
  }
  CHECK(inner.items("er")[0].text() == "value that is long enough to live on the heap");
}

TEST_CASE("an answer that is not JSON is an error") {
  CHECK_THROWS_AS(Json::parse("<html>"), moorage::base::Error);
  CHECK_THROWS_AS(Json::parse(std::string(1000, '[')), moorage::base::Error);
}

TEST_CASE("requests escape every character that needs it") {
  const std::string text = JsonObject()
                               .add("s", "quote\" back\\ nl\n")
                               .add("n", int64_t{-5})
                               .add("d", 0.5)
                               .add("b", true)
                               .add("l", std::vector<std::string>{"a", "b"})
                               .add("o", JsonObject().add("x", "y"))
                               .str();
  CHECK(text ==
        R"({"s":"quote\" back\\ nl\n","n":-5,"d":0.5,"b":true,"l":["a","b"],"o":{"x":"y"}})");
}

TEST_CASE("bytes that are not UTF-8 are refused with the field's name") {
  try {
    JsonObject().add("argv", std::vector<std::string>{"ok", "\xff"});
    FAIL("accepted");
  } catch (const moorage::base::Error& error) {
    CHECK(error.message() == "argv: '\\xff' is not UTF-8 text");
  }
}
