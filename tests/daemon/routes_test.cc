#include "daemon/routes/routes.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/os/files.h"
#include "daemon/routes/metrics_page.h"
#include "state_db/tables/best_of.h"
#include "state_db/tables/workspaces.h"
#include "wired.h"

using namespace moorage;
using namespace moorage::daemon;

namespace {

// "GET /v1/repos/{}" of every operation in the document.
std::set<std::string> documented() {
  std::istringstream lines(base::read_file(MOORAGE_OPENAPI));
  std::set<std::string> found;
  std::string path;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex("  (/[^:]*):.*"))) {
      path = std::regex_replace(match[1].str(), std::regex("\\{[a-z]+\\}"), "{}");
    } else if (std::regex_match(line, match, std::regex("    (get|put|post|patch|delete):.*"))) {
      std::string method = match[1];
      for (char& c : method) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      found.insert(method + " " + path);
    }
  }
  return found;
}

std::string events_seen(Wired& wired, uint32_t uid) {
  std::string all;
  const auto source = stream_events(wired.info().events, workspace::Caller{uid}, 0, false);
  for (;;) {
    const auto step = source->read();
    all += step.bytes;
    if (step.next == BodySource::Next::end) return all;
  }
}

}  // namespace

TEST_CASE("the API document lists exactly the served routes") {
  Wired wired;
  Router router;
  add_all_routes(router, wired.api(), wired.info());
  const MetricsPage metrics(router, wired.api());
  add_metrics_route(router, metrics);
  std::set<std::string> served;
  for (const auto& route : router.routes())
    CHECK(served.insert(route.method + " " + route.pattern).second);
  CHECK(served == documented());
}

TEST_CASE("every changing route joins its key to the effect, with a few exceptions") {
  const std::map<std::string, std::string> few{
      {"POST /v1/gc", "a repeat collects by the same rules"},
      {"POST /v1/config/reload", "a repeat reads the file as it is then"},
      {"POST /v1/doctor", "a repeat repairs what is broken then"},
      {"POST /v1/execs/{}/signal", "no record shows the command's reaction"},
      {"POST /v1/execs/{}/resize", "the last size wins"},
  };
  Wired wired;
  Router router;
  add_all_routes(router, wired.api(), wired.info());
  std::set<std::string> found;
  for (const auto& route : router.routes()) {
    if (route.method == "GET" || route.keep != Keep::answer) continue;
    const std::string name = route.method + " " + route.pattern;
    INFO(name);
    CHECK(few.contains(name));
    found.insert(name);
  }
  CHECK(found.size() == few.size());
}

TEST_CASE("a repeat sees an archiving cut by a crash as in progress") {
  Wired wired;
  const auto workspace = wired.make_workspace("moves", 1000);
  workspace::Caller caller{.uid = 1000};
  caller.keyed = std::make_shared<workspace::KeyedRequest>(1000, "key", "POST");
  CHECK_THROWS_WITH(wired.api().archives.resume(caller, state_db::move_under_way(workspace)),
                    Catch::Contains("is in progress"));
  CHECK(caller.keyed->undecided);
  CHECK(wired.api().archives.resume(caller, workspace.str()).row.id == workspace);
}

TEST_CASE("every route that names a workspace or an exec hides it from other users") {
  Wired wired;
  const auto workspace = wired.make_workspace("mine", 1000);
  const auto exec = wired.make_exec(workspace);
  const auto best_of =
      state_db::BestOfTable(wired.store()).begin({.workspace = workspace, .owner_uid = 1000}).id;
  Router router;
  add_all_routes(router, wired.api(), wired.info());
  int asked = 0;
  for (const auto& route : router.routes()) {
    const bool of_workspace = route.pattern.starts_with("/v1/workspaces/{}");
    const bool of_best_of = route.pattern.starts_with("/v1/best-of/{}");
    if (!of_workspace && !of_best_of && !route.pattern.starts_with("/v1/execs/{}")) continue;
    CAPTURE(route.method, route.pattern);
    for (const std::string& name : {workspace.str(), std::string("mine")}) {
      Request request;
      request.method = route.method;
      request.caller.uid = 1001;
      const std::string other = of_best_of ? best_of.str() : exec.str();
      request.parameters = {of_workspace ? name : other, "sn_1"};
      request.query = {{"path", "README.md"}};
      // Bodies that each verb accepts, so that the owner check is reached.
      if (route.pattern.ends_with("/execs")) request.body = R"({"argv":["true"]})";
      if (route.pattern.ends_with("/signal")) request.body = R"({"signal":"INT"})";
      if (route.pattern.ends_with("/lease") && route.method == "POST")
        request.body = R"({"holder":"x"})";
      if (route.pattern.ends_with("/lease") && route.method != "POST")
        request.caller.leases = {{{}, 1, {}}};
      if (route.pattern.ends_with("/restore")) request.body = R"({"snapshot":"sn_1"})";
      if (route.pattern.ends_with("/share")) request.body = R"({"private":true})";
      if (route.pattern.ends_with("files/move")) request.body = R"({"from":"a","to":"b"})";
      if (route.pattern.ends_with("/mkdir")) request.body = R"({"path":"a"})";
      if (route.pattern.ends_with("/symlink")) request.body = R"({"path":"a","target":"b"})";
      WorkerPools worker_pools(1);
      KeyedAnswers answers(wired.store());
      Dispatcher dispatcher(worker_pools, answers);
      asked += 1;
      if (route.is_upload()) {
        try {
          dispatcher.begin_upload(route, request);
          FAIL("taken");
        } catch (const base::Error& error) {
          CHECK(error.code() == base::Code::not_found);
        }
        continue;
      }
      const Reply reply = dispatcher.answer(route, request);
      if (reply.source) {
        CHECK_THROWS_AS(reply.source->read(), base::Error);
      } else {
        CHECK(reply.status == 404);
      }
    }
  }
  CHECK(asked >= 40);
}

TEST_CASE("every route declares its right on a workspace, and its verb gets no more") {
  Wired wired;
  Router router;
  add_all_routes(router, wired.api(), wired.info());
  for (const auto& route : router.routes()) {
    CAPTURE(route.method, route.pattern);
    const bool names_one = route.pattern.starts_with("/v1/workspaces/{}") ||
                           route.pattern.starts_with("/v1/execs/{}") ||
                           route.pattern.starts_with("/v1/best-of/{}");
    if (!names_one) {
      CHECK_FALSE(workspace::asks_lease(route.access.right()));
      continue;
    }
    if (route.method == "GET") {
      CHECK(route.access.right() == Right::read);
    } else if (route.method == "PATCH" || route.pattern.ends_with("/share") ||
               route.pattern.ends_with("/network")) {
      CHECK(route.access.right() == Right::govern);
    } else {
      CHECK(workspace::asks_lease(route.access.right()));
    }
  }
  const auto id = wired.make_workspace("mine", 1000);
  workspace::Caller caller{1000};
  caller.route = Right::read;
  CHECK_NOTHROW(workspace::find_workspace(wired.api().store, caller, id.str(), Right::read));
  try {
    workspace::find_workspace(wired.api().store, caller, id.str(), Right::write);
    FAIL("found");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::internal);
  }
}

TEST_CASE("a member of the team sees and writes, and does not govern or destroy") {
  Wired wired;
  auto& api = wired.api();
  const auto id = wired.make_workspace("shared", 1000);
  const auto exec = wired.make_exec(id);
  workspace::Caller owner{1000};
  workspace::Caller member{1001, {50, 70}};
  workspace::Caller outsider{1002, {51}};
  const auto code_of = [&](const workspace::Caller& caller, Right right) {
    try {
      bool same = true;
      for (const std::string& name : {id.str(), std::string("shared")})
        same = same && workspace::find_workspace(api.store, caller, name, right).id == id;
      same = same && workspace::find_exec(wired.store(), caller, exec, right).id == exec;
      return std::string(same ? "ok" : "another");
    } catch (const base::Error& error) {
      return std::string(base::code_name(error.code()));
    }
  };
  for (const Right right : {Right::read, Right::write, Right::govern, Right::destroy}) {
    CHECK(code_of(owner, right) == "ok");
    CHECK(code_of(workspace::Caller{}, right) == "ok");
    CHECK(code_of(member, right) == "not_found");
    CHECK(code_of(outsider, right) == "not_found");
  }
  CHECK(api.views.list(member, {}).views.empty());
  api.updates.share(owner, "shared", 70);
  CHECK(code_of(member, Right::read) == "ok");
  CHECK(code_of(member, Right::write) == "ok");
  CHECK(code_of(member, Right::govern) == "permission_denied");
  CHECK(code_of(member, Right::destroy) == "permission_denied");
  CHECK(code_of(outsider, Right::read) == "not_found");
  CHECK(api.views.list(member, {}).views.size() == 1);
  CHECK(api.views.list(outsider, {}).views.empty());
  CHECK(wired.api().execs.list(member, {}).size() == 1);
  CHECK(wired.api().execs.list(outsider, {}).empty());
}

TEST_CASE("a page is filled with visible rows, however many hidden rows lie between") {
  Wired wired;
  auto& api = wired.api();
  for (int i = 0; i < 12; ++i)
    wired.make_workspace("w" + std::to_string(i), i % 4 == 0 ? 1000 : 1001);  // 0, 4, 8
  api.updates.share(workspace::Caller{1001}, "w6", 70);
  const auto names = [&](const workspace::Caller& caller, const workspace::PageRequest& wanted) {
    const auto page = api.views.list(caller, wanted);
    std::string text;
    for (const auto& view : page.views) text += view.row.name + " ";
    return text + (page.more ? "more" : "end");
  };
  const workspace::Caller one{1000};
  const workspace::Caller member{1000, {70}};
  CHECK(names(one, {.limit = 2}) == "w0 w4 more");
  CHECK(names(one, {.limit = 3}) == "w0 w4 w8 end");
  CHECK(names(one, {.after = {5}, .limit = 2}) == "w8 end");
  CHECK(names(member, {.after = {1}, .limit = 2}) == "w4 w6 more");
  CHECK(names(workspace::Caller{1002}, {.limit = 1}) == "end");
  CHECK(names(workspace::Caller{}, {.after = {10}, .limit = 1}) == "w10 more");
}

TEST_CASE("a name finds one's own first, then the team's; an ambiguous one needs the id") {
  Wired wired;
  auto& api = wired.api();
  const auto first = wired.make_workspace("same", 1000);
  const auto second = wired.make_workspace("same", 1001);
  api.updates.share(workspace::Caller{1000}, "same", 70);
  api.updates.share(workspace::Caller{1001}, "same", 71);
  workspace::Caller both{1002, {70, 71}};
  CHECK(
      workspace::find_workspace(api.store, workspace::Caller{1002, {71}}, "same", Right::read).id ==
      second);
  try {
    workspace::find_workspace(api.store, both, "same", Right::read);
    FAIL("found");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::conflict);
    CHECK(error.message().find(first.str() + ", " + second.str()) != std::string::npos);
  }
  const auto own = wired.make_workspace("same", 1002);
  CHECK(workspace::find_workspace(api.store, both, "same", Right::read).id == own);
}

TEST_CASE("events are seen by the workspace's owner and by root") {
  Wired wired;
  wired.make_workspace("a", 1000);
  wired.make_workspace("b", 1001);
  CHECK(events_seen(wired, 0).find("\"ws_1\"") != std::string::npos);
  CHECK(events_seen(wired, 0).find("\"ws_2\"") != std::string::npos);
  CHECK(events_seen(wired, 1000).find("\"ws_1\"") != std::string::npos);
  CHECK(events_seen(wired, 1000).find("\"ws_2\"") == std::string::npos);
  CHECK(events_seen(wired, 1002).empty());
}

TEST_CASE("a follower of events wakes on a commit and continues where it was") {
  Wired wired;
  const auto source = stream_events(wired.info().events, workspace::Caller{0}, 0, true);
  std::atomic<int> woken{0};
  source->start([&] { woken += 1; });
  CHECK(source->read().next == BodySource::Next::wait);
  const auto id = wired.make_workspace("a", 0);
  CHECK(soon([&] { return woken > 0; }));
  const auto step = source->read();
  CHECK(step.bytes.find("\"" + id.str() + "\"") != std::string::npos);
  CHECK(source->read().bytes.empty());
}

TEST_CASE("a create request is read strictly") {
  Wired wired;
  Served served;
  add_all_routes(served.router(), wired.api(), wired.info());
  served.start();
  for (const char* body :
       {R"({"repo_url":"x","privileged":true})", R"({"repo_url":"x","limits":{"swap":1}})",
        R"({"repo_url":1})", R"({"import":{"repo":"../x","head_commit":"a","work_commit":"b"}})",
        R"({"name":"a","name":"b","repo_url":"x"})", R"({"repo_url":"x","limits":{"pids":-1}})"}) {
    CAPTURE(body);
    const Answer answer = served.post("/v1/workspaces", body);
    CHECK(answer.status == 400);
    CHECK(answer.body.find("invalid_argument") != std::string::npos);
  }
}

TEST_CASE("a reload puts new rules into effect, and a wrong file keeps the former ones") {
  Wired wired;
  Served served;
  add_all_routes(served.router(), wired.api(), wired.info());
  served.start();
  const auto rules = [&] { return wired.api().context.options.placement_rules->get(); };
  const auto before = rules();
  wired.refusal = "/etc/moorage/moorage.yaml:14:5: unknown key";
  const Answer refused = served.post("/v1/config/reload", "");
  CHECK(refused.status == 400);
  CHECK(refused.body.find("moorage.yaml:14:5: unknown key") != std::string::npos);
  CHECK(rules() == before);
  wired.refusal.clear();
  workspace::PlacementRule rule;
  rule.name = "policy rule 1 (f:2)";
  rule.backends = {"nonsense"};
  wired.next_read.rules = std::make_shared<const std::vector<workspace::PlacementRule>>(1, rule);
  CHECK(served.post("/v1/config/reload", "").body.find("there is no backend 'nonsense'") !=
        std::string::npos);
  CHECK(rules() == before);
  rule.backends = {"lxc"};
  wired.next_read.rules = std::make_shared<const std::vector<workspace::PlacementRule>>(1, rule);
  wired.next_read.shown = {{"api.socket", "/run/y", "", "f:1", ""},
                           {"policy[1]", "{backends: [lxc]}", "", "f:2", ""}};
  const auto done = boost::json::parse(served.post("/v1/config/reload", "").body);
  CHECK(done.at("rules").to_number<int>() == 1);
  CHECK(done.at("need_restart").as_array().at(0).as_string() == "api.socket");
  CHECK(rules()->size() == 1);
  const std::string config = served.ask("GET /v1/config HTTP/1.1\r\n\r\n").body;
  CHECK(config.find("\"/run/x\"") != std::string::npos);  // as it is until a restart
  CHECK(config.find("{backends: [lxc]}") != std::string::npos);
}

TEST_CASE("a reload shows the rules in force when the first comes and the last goes") {
  Wired wired;
  Served served;
  add_all_routes(served.router(), wired.api(), wired.info());
  served.start();
  const auto reload = [&](const std::vector<SettingView>& policy, size_t rules) {
    workspace::PlacementRule rule;
    rule.name = "policy rule 1 (f:2)";
    wired.next_read.rules =
        std::make_shared<const std::vector<workspace::PlacementRule>>(rules, rule);
    wired.next_read.shown = {{"api.socket", "/run/x", "", "f:1", ""}};
    wired.next_read.shown.insert(wired.next_read.shown.end(), policy.begin(), policy.end());
    const auto done = boost::json::parse(served.post("/v1/config/reload", "").body);
    CHECK(done.at("rules").to_number<size_t>() == rules);
    CHECK(done.at("need_restart").as_array().empty());
    return served.ask("GET /v1/config HTTP/1.1\r\n\r\n").body;
  };
  const SettingView none{"policy", "[]", "", "default", ""};
  const SettingView one{"policy[1]", "{max: {cpus: 1}}", "", "f:2", ""};
  const auto has = [](const std::string& config, const std::string& name) {
    return config.find("\"" + name + "\"") != std::string::npos;
  };
  CHECK(has(reload({none}, 0), "policy"));
  const std::string added = reload({one}, 1);
  CHECK_FALSE(has(added, "policy"));
  CHECK(has(added, "policy[1]"));
  const std::string removed = reload({none}, 0);
  CHECK(has(removed, "policy"));
  CHECK_FALSE(has(removed, "policy[1]"));
}

TEST_CASE("info and config show the wired values") {
  Wired wired;
  wired.info().host.version = "9.9";
  wired.make_exec(wired.make_workspace("a", 0));
  Served served;
  add_all_routes(served.router(), wired.api(), wired.info());
  served.start();
  const auto info = boost::json::parse(served.ask("GET /v1/info HTTP/1.1\r\n\r\n").body);
  CHECK(info.at("version").as_string() == "9.9");
  CHECK(info.at("counts").at("execs_running").to_number<int>() == 1);
  CHECK(info.at("counts").at("sandboxes").to_number<int>() == 1);
  CHECK(info.at("space").at("total_bytes").to_number<uint64_t>() > 0);
  CHECK(served.ask("GET /v1/config HTTP/1.1\r\n\r\n").body.find("\"/run/x\"") != std::string::npos);
  CHECK(served.ask("GET /v1/health HTTP/1.1\r\n\r\n").status == 204);
}
