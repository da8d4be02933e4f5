#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "daemon/json/json_fields.h"
#include "daemon/json/json_views.h"

using namespace moorage;
using namespace moorage::daemon;

TEST_CASE("an unknown field is refused by name, also inside an object") {
  JsonFields outer = JsonFields::parse(R"({"name":"a","limits":{"memory_bytes":1,"swap":2}})");
  CHECK(outer.text("name") == "a");
  auto limits = outer.object("limits");
  REQUIRE(limits);
  CHECK(limits->whole("memory_bytes", 1, 10) == 1);
  CHECK_THROWS_WITH(limits->finish(), Catch::Contains("limits.swap"));
  CHECK_NOTHROW(outer.finish());
  JsonFields unknown = JsonFields::parse(R"({"priviledged":true})");
  CHECK_THROWS_WITH(unknown.finish(), "unknown field 'priviledged'");
}

TEST_CASE("an unknown field is refused with the known one that was probably meant") {
  const auto refusal = [](const std::string& name) {
    JsonFields outer = JsonFields::parse("{\"limits\":{\"" + name + "\":1}}");
    auto fields = outer.object("limits");
    fields->whole("timeout_ms", 0, 10);
    fields->bytes("path");
    try {
      fields->finish();
    } catch (const base::Error& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  CHECK(refusal("timeout") == "unknown field 'limits.timeout'; did you mean limits.timeout_ms?");
  CHECK(refusal("pahts") == "unknown field 'limits.pahts'");
  CHECK(refusal("pathh") == "unknown field 'limits.pathh'; did you mean limits.path?");
  const std::string is_long(1000, 'p');
  CHECK(refusal(is_long) == "unknown field 'limits." + is_long + "'");
}

TEST_CASE("a duplicate key is refused at any depth, also when escapes hide it") {
  CHECK_THROWS_WITH(JsonFields::parse(R"({"user":"user","user":"root"})"),
                    Catch::Contains("'user'"));
  CHECK_THROWS_WITH(JsonFields::parse(R"({"user":"user","\u0075ser":"root"})"),
                    Catch::Contains("'user'"));
  CHECK_THROWS_WITH(JsonFields::parse(R"({"a":[{"b":1,"b":1}]})"), Catch::Contains("'b'"));
  CHECK_NOTHROW(JsonFields::parse(R"({"a":{"b":1},"b":{"a":1}})"));
}

TEST_CASE("texts that are too deep, cut off, not JSON or not UTF-8 are refused") {
  const auto nested = [](size_t levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  CHECK_NOTHROW(JsonFields::parse(nested(32)));
  CHECK_THROWS_WITH(JsonFields::parse(nested(33)), Catch::Contains("32"));
  CHECK_THROWS_WITH(JsonFields::parse(nested(100'000)), Catch::Contains("32"));
  for (const char* bad :
       {"[]", "1", "{", "{} {}", "{'a':1}", "{\"a\":1,}", "{\"a\":\"\xff\"}", "nul"}) {
    CHECK_THROWS_AS(JsonFields::parse(bad), base::Error);
  }
}

TEST_CASE("a wrong type or a number out of range names its field") {
  JsonFields fields = JsonFields::parse(
      R"({"text":1,"whole":1.5,"high":11,"huge":18446744073709551615,"flag":"true","map":{"a":1},
          "list":["a",1],"object":[],"nothing":null})");
  CHECK_THROWS_WITH(fields.text("text"), Catch::StartsWith("text must be "));
  CHECK_THROWS_WITH(fields.whole("whole", 0, 10), Catch::StartsWith("whole must be "));
  CHECK_THROWS_WITH(fields.whole("high", 0, 10), Catch::StartsWith("high must be "));
  CHECK_THROWS_WITH(fields.whole("huge", 0, INT64_MAX), Catch::StartsWith("huge must be "));
  CHECK_THROWS_WITH(fields.flag("flag"), Catch::StartsWith("flag must be "));
  CHECK_THROWS_WITH(fields.text_map("map"), "map.a must be a string");
  CHECK_THROWS_WITH(fields.byte_list("list"), "list[1] must be a string");
  CHECK_THROWS_WITH(fields.object("object"), "object must be an object");
  CHECK_THROWS_WITH(fields.text("nothing"), "nothing must be a string");
  CHECK_THROWS_WITH(fields.required_text("absent"), "missing field 'absent'");
}

TEST_CASE("texts of any bytes come plain or in base64, not both") {
  JsonFields fields = JsonFields::parse(
      R"({"a":"x","b_b64":"/wA=","argv_b64":["Zg==","/w=="],"c":"x","c_b64":"eA=="})");
  CHECK(fields.bytes("a") == "x");
  CHECK(fields.bytes("b") == std::string("\xff\0", 2));
  CHECK(fields.byte_list("argv") == std::vector<std::string>{"f", "\xff"});
  CHECK_THROWS_WITH(fields.bytes("c"), "give c or c_b64, not both");
  JsonFields bad = JsonFields::parse(R"({"a_b64":"/w","b_b64":"%%%%","c_b64":"/w==x"})");
  CHECK_THROWS_AS(bad.bytes("a"), base::Error);
  CHECK_THROWS_AS(bad.bytes("b"), base::Error);
  CHECK_THROWS_AS(bad.bytes("c"), base::Error);
}

TEST_CASE("a name that is not UTF-8 is shown with replacements and complete in base64") {
  layers::Listing listing;
  layers::FileEntry odd;
  odd.name = "caf\xe9\n\x1b";
  listing.entries.push_back(odd);
  const auto json = boost::json::parse(listing_json("src", listing)).as_object();
  const auto& entry = json.at("entries").as_array().at(0).as_object();
  CHECK(entry.at("name").as_string() == "caf\xEF\xBF\xBD\n\x1b");
  CHECK(base64_decode(std::string(entry.at("name_b64").as_string().c_str())) == odd.name);
  CHECK_FALSE(json.contains("path_b64"));
}

TEST_CASE("only shortest forms of scalar values count as UTF-8") {
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(lossy_utf8("gr\xc3\xbc\xc3\x9f \xf0\x9f\x9a\xa2") == "gr\xc3\xbc\xc3\x9f \xf0\x9f\x9a\xa2");
  CHECK(lossy_utf8("\xc0\x80") == mark + mark);
  CHECK(lossy_utf8("\xed\xa0\x80") == mark + mark + mark);
  CHECK(lossy_utf8("\xf4\x90\x80\x80") == mark + mark + mark + mark);
  CHECK(lossy_utf8("a\xe2\x82") == "a" + mark + mark);
}

TEST_CASE("an exec shows all known values, and a running exec no outcome") {
  workspace::ExecView view;
  view.row.id = base::ExecId{7};
  view.row.request.argv = {"echo", "\xff"};
  view.row.state = state_db::ExecState::running;
  auto json = boost::json::parse(exec_json(view)).as_object();
  CHECK(json.at("state").as_string() == "running");
  CHECK(json.at("argv_b64").as_array().size() == 2);
  CHECK_FALSE(json.contains("exit_code"));
  CHECK_FALSE(json.contains("ended_at"));
  view.row.state = state_db::ExecState::exited;
  view.row.outcome.exit_code = 3;
  view.row.outcome.ended_wall_ms = 1'000;
  json = boost::json::parse(exec_json(view)).as_object();
  CHECK(json.at("exit_code").as_int64() == 3);
  CHECK(json.at("ended_at").as_string() == "1970-01-01T00:00:01.000Z");
}

TEST_CASE("info has the hosts of a backend on other machines, with their use") {
  InfoView info;
  info.backends = {{"lxc", {}}, {"ssh", {}}};
  info.places["ssh"] = {{.name = "a", .used = 2, .most = 4, .last_contact_wall_ms = 1000},
                        {.name = "b", .most = 8, .last_error = "no route\xff"}};
  const auto shown = boost::json::parse(info_json(info));
  const auto& backends = shown.at("backends").as_array();
  CHECK_FALSE(backends.at(0).as_object().contains("hosts"));
  CHECK(
      boost::json::serialize(backends.at(1).at("hosts")) ==
      R"([{"name":"a","sandboxes":2,"max_sandboxes":4,"last_contact":"1970-01-01T00:00:01.000Z"},)"
      "{\"name\":\"b\",\"sandboxes\":0,\"max_sandboxes\":8,\"last_error\":\"no "
      "route\xef\xbf\xbd\"}]");
}
