#include "workspace/network/sightings.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "state_db/tables/execs.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/new_workspace.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/settings.h"

using namespace moorage::workspace;
using moorage::base::ExecId;
using moorage::base::NetworkPolicy;
using moorage::base::Sighting;
using moorage::base::SightingKind;
namespace state_db = moorage::state_db;

namespace {

struct SightingsFixture : ContextFixture {
  SightingsFixture() {
    state_db::WorkspaceTable workspaces(store);
    const auto row = workspaces.create(new_workspace(store, "auth"));
    workspaces.set_ready(row.id);
    state_db::NewSandbox wanted;
    wanted.workspace = row.id;
    wanted.backend = "lxc";
    wanted.image = "host";
    state_db::SandboxTable sandboxes(store);
    sandbox.sandbox = sandboxes.create(wanted).id;
    sandbox.workspace = row.id;
    sandboxes.set_running(sandbox.sandbox, {});
  }
  ExecId command() {
    state_db::NewExec request;
    request.workspace = sandbox.workspace;
    request.sandbox = sandbox.sandbox;
    request.argv = {"npm"};
    request.user = "user";
    return state_db::ExecTable(store).create(request).id;
  }
  void end(ExecId exec) {
    state_db::ExecTable(store).finish(exec, {.exit_code = 1});
    sightings.ended(exec);
  }
  Sighting refused(const std::string& host, uint16_t port = 0) {
    Sighting sighting;
    sighting.serial = ++serial;
    sighting.host = host;
    sighting.port = port;
    sighting.why = "no rule allows it";
    return sighting;
  }
  void record(ExecId exec, const Sighting& sighting) { sightings.record(sandbox, sighting, exec); }
  std::string blocked() const {
    const auto found = sightings.blocked(sandbox.workspace);
    return found ? found->host + " (" + found->exec.str() + ")" : "";
  }
  size_t events() { return store.events(0, 100'000, sandbox.workspace).size(); }

  uint64_t serial = 0;
  LiveSandbox sandbox;
  IncomingPacks incoming{context};
  ExecWatcher watcher{context, incoming};
  const NetworkOptions network{};
  Sightings sightings{context, watcher, network};
};

NetworkPolicy allowing(const std::string& word) {
  NetworkPolicy policy;
  policy.own = {parse_network_rule(word)};
  return policy;
}

}  // namespace

TEST_CASE("a refused command is blocked until a rule allows the host, or it ends") {
  SightingsFixture test;
  const ExecId first = test.command();
  const ExecId second = test.command();
  test.record(first, test.refused("api.example.com"));
  CHECK(test.blocked() == "api.example.com (" + first.str() + ")");
  test.record(second, test.refused("db.example.com", 5432));
  CHECK(test.blocked() == "db.example.com:5432 (" + second.str() + ")");
  test.sightings.reconsider(test.sandbox.workspace, allowing("allow db.example.com"));
  CHECK(test.blocked() == "db.example.com:5432 (" + second.str() + ")");  // another port
  test.sightings.reconsider(test.sandbox.workspace, allowing("allow db.example.com:5432"));
  CHECK(test.blocked() == "api.example.com (" + first.str() + ")");
  test.end(first);
  CHECK(test.blocked().empty());
  CHECK(test.sightings.notices(first).size() == 1);  // its follower may read on
}

TEST_CASE("a refusal that arrives after the end of its command blocks nothing") {
  SightingsFixture test;
  const ExecId exec = test.command();
  test.end(exec);
  test.record(exec, test.refused("api.example.com"));
  CHECK(test.blocked().empty());
  CHECK(
      test.sightings.notices(exec) ==
      std::vector<std::string>{"api.example.com was refused: no rule allows it; allow it: moorage "
                               "net allow auth api.example.com"});
}

TEST_CASE("quiet refusals and reached hosts are events without a notice") {
  SightingsFixture test;
  const ExecId exec = test.command();
  const size_t before = test.events();
  auto quiet = test.refused("telemetry.example.com");
  quiet.quiet = true;
  test.record(exec, quiet);
  auto reached = test.refused("api.example.com", 443);
  reached.kind = SightingKind::reached;
  test.record(exec, reached);
  CHECK(test.events() == before + 2);
  CHECK(test.sightings.notices(exec).empty());
  CHECK(test.blocked().empty());
}

TEST_CASE("sightings recorded by an earlier daemon are not recorded again") {
  SightingsFixture test;
  const ExecId exec = test.command();
  const auto sighting = test.refused("api.example.com");
  test.record(exec, sighting);
  const size_t once = test.events();
  test.record(exec, sighting);
  CHECK(test.events() == once);
  Sightings later(test.context, test.watcher, test.network);
  later.recall(test.sandbox);
  later.record(test.sandbox, sighting, exec);
  CHECK(test.events() == once);
  CHECK(later.notices(exec).size() == 1);
}

TEST_CASE("an egress that reports without end fills neither the database nor memory") {
  SightingsFixture test;
  const ExecId exec = test.command();
  const size_t first = test.events();
  for (size_t n = 0; n < Sightings::kMaxEvents + 100; ++n)
    test.record(exec, test.refused("host" + std::to_string(n) + ".example.com"));
  CHECK(test.events() < first + Sightings::kMaxEvents);
  CHECK(test.sightings.notices(exec).size() == Sightings::kMaxNotices);
  test.clock.shift_ms += 3'600'000;
  const size_t before = test.events();
  test.record(exec, test.refused("later.example.com"));
  CHECK(test.events() == before + 1);
  test.end(exec);
  for (size_t n = 0; n <= Sightings::kKeptAfterEnd; ++n) {
    const ExecId other = test.command();
    test.record(other, test.refused("api.example.com"));
    test.end(other);
  }
  CHECK(test.sightings.notices(exec).empty());
}
