#include "daemon/http/http_text.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "daemon/http/router.h"

using namespace moorage;
using namespace moorage::daemon;

TEST_CASE("percent escapes yield any byte but zero, and a plus is a space only in a query") {
  CHECK(percent_decode("a%2Fb%ff", false) == "a/b\xff");
  CHECK(percent_decode("a+b", false) == "a+b");
  CHECK(percent_decode("a+b%2B", true) == "a b+");
  for (const char* bad : {"%", "%2", "%zz", "%00", "%-1", "a%"}) {
    CHECK_THROWS_AS(percent_decode(bad, false), base::Error);
  }
}

TEST_CASE("the values of a query parameter given twice stay apart") {
  CHECK(parse_target("/x?a=1&a=2").query.at("a") == std::string("1\0002", 3));
  CHECK(parse_target("/x?a&%61=2").query.at("a") == std::string("\0002", 2));
  const Target target = parse_target("/x?a=1&b&c=%20d&");
  CHECK(target.query.at("a") == "1");
  CHECK(target.query.at("b").empty());
  CHECK(target.query.at("c") == " d");
}

TEST_CASE("a request target that is not a path is refused") {
  CHECK_THROWS_AS(parse_target("http://other/v1/info"), base::Error);
  CHECK_THROWS_AS(parse_target("*"), base::Error);
}

TEST_CASE("a header value cannot start another header line") {
  const std::vector<std::pair<std::string, std::string>> headers{{"Allow", "GET\r\nEvil: 1"}};
  const Head head{.status = 405, .content_type = "text/plain", .headers = &headers, .length = 0};
  CHECK(response_head(head).find("\r\nEvil") == std::string::npos);
}

namespace {

Router small_router() {
  Router router;
  const Handler nothing = [](const Request&) { return Reply::none(); };
  router.add({.method = "GET",
              .pattern = "/v1/repos/import",
              .access = Right::none,
              .handler = nothing,
              .query = {"label"}});
  router.add(
      {.method = "GET", .pattern = "/v1/repos/{}", .access = Right::none, .handler = nothing});
  router.add(
      {.method = "DELETE", .pattern = "/v1/repos/{}", .access = Right::none, .handler = nothing});
  return router;
}

}  // namespace

TEST_CASE("segments are decoded after splitting, so an escaped slash stays in its segment") {
  const Router router = small_router();
  Request request;
  request.method = "GET";
  const auto found = router.match("/v1/repos/acme%2Fshop", request);
  REQUIRE(std::holds_alternative<const Route*>(found));
  CHECK(request.parameter(0) == "acme/shop");
}

TEST_CASE("a literal path wins over the pattern after it") {
  const Router router = small_router();
  Request request;
  request.method = "GET";
  const auto found = router.match("/v1/repos/import?label=x", request);
  CHECK(std::get<const Route*>(found)->pattern == "/v1/repos/import");
  CHECK(request.query_text("label") == "x");
}

TEST_CASE("a known path lists its methods, an unknown path lists none") {
  const Router router = small_router();
  Request request;
  request.method = "POST";
  CHECK(std::get<Router::Missed>(router.match("/v1/repos/repo_1", request)).allow == "GET, DELETE");
  for (const char* missing : {"/v1/repos/", "/v1/repos/a/b", "/v2/repos/a", "/", "/v1/repos//"}) {
    CHECK(std::get<Router::Missed>(router.match(missing, request)).allow.empty());
  }
}

TEST_CASE("an unknown query parameter is refused by name") {
  const Router router = small_router();
  Request request;
  request.method = "DELETE";
  CHECK_THROWS_WITH(router.match("/v1/repos/repo_1?purge=1", request), Catch::Contains("purge"));
}

TEST_CASE("numbers and flags of a query are checked") {
  Request request;
  request.query = {
      {"n", "12"}, {"bad", "12x"}, {"big", "99999999999999999999"}, {"f", "1"}, {"g", "yes"}};
  CHECK(request.query_number("n") == 12u);
  CHECK_FALSE(request.query_number("absent"));
  CHECK_THROWS_AS(request.query_number("bad"), base::Error);
  CHECK_THROWS_AS(request.query_number("big"), base::Error);
  CHECK_THROWS_AS(request.query_number("n", 11), base::Error);
  CHECK(request.query_flag("f"));
  CHECK_FALSE(request.query_flag("absent"));
  CHECK_THROWS_AS(request.query_flag("g"), base::Error);
  CHECK_THROWS_WITH(request.required_query("path"), Catch::Contains("path"));
}
