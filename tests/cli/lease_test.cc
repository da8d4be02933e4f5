// Where the secret of a lease is saved and when it is sent.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/os/files.h"
#include "cli/client/json.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::RunOptions;

namespace {

std::string token_of(const std::string& lease, char digit) {
  return lease + "." + std::string(64, digit);
}

struct LeaseScene {
  std::string token = token_of("ws_1.5", 'a');
  test::ScriptedServer server{[this](Call& call) {
    if (call.is("POST /v1/workspaces/auth/lease")) {
      return call.reply(
          201, R"({"held":true,"generation":5,"holder":"me","ttl_s":60,"token":")" + token + "\"}");
    }
    if (call.is("GET /v1/workspaces/auth"))
      return call.reply(200, R"({"id":"ws_1","name":"auth"})", test::json_header());
    call.reply(204, "");
  }};
  const std::string state = server.directory() + "/state";

  Ran run(const std::vector<std::string>& words, const std::string& lease = "") {
    RunOptions options{server.socket_path(), "", {{"XDG_STATE_HOME", state}}};
    if (!lease.empty()) options.environment["MOORAGE_LEASE"] = lease;
    server.settle();
    return run_moorage(words, options);
  }
  // The header that a release sent.
  std::string sent(std::vector<std::string> words, const std::string& lease = "") {
    words.insert(words.begin(), {"lease", "release", "auth"});
    CHECK(run(words, lease).code == 0);
    const auto headers = server.seen().back().headers;
    const auto found = headers.find("moorage-lease");
    return found == headers.end() ? "" : found->second;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(state)) return found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(state)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }
};

}  // namespace

TEST_CASE("the secret of a lease is saved in a private file and not printed") {
  LeaseScene scene;
  const Ran ran = scene.run({"lease", "acquire", "auth"});
  CHECK(ran.code == 0);
  CHECK(ran.out.find("export MOORAGE_LEASE=ws_1.5; moorage lease keep auth &") !=
        std::string::npos);
  CHECK((ran.out + ran.err).find(std::string(64, 'a')) == std::string::npos);
  REQUIRE(scene.files().size() == 1);
  const std::filesystem::path file = scene.files()[0];
  CHECK(file.filename() == "ws_1.5");
  CHECK(base::read_file(file) == scene.token + "\n");
  for (const auto& [path, mode] : {std::pair{file, 0600}, {file.parent_path(), 0700}}) {
    struct stat found {};
    REQUIRE(stat(path.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == static_cast<mode_t>(mode));
  }
  scene.token = token_of("ws_1.6", 'b');
  scene.run({"lease", "acquire", "auth"});
  REQUIRE(scene.files().size() == 1);
  CHECK(std::filesystem::path(scene.files()[0]).filename() == "ws_1.6");
}

TEST_CASE("with --json the answer has the secret, and nothing is saved") {
  LeaseScene scene;
  const Ran ran = scene.run({"--json", "lease", "acquire", "auth"});
  CHECK(cli::Json::parse(ran.out).text("token") == scene.token);
  CHECK(scene.files().empty());
}

TEST_CASE("a release of no named lease names the saved one of its workspace") {
  LeaseScene scene;
  CHECK(scene.sent({}).empty());
  scene.run({"lease", "acquire", "auth"});
  const Ran refused = scene.run({"lease", "release", "auth"});
  CHECK(refused.code == 1);
  CHECK(refused.err.find("moorage --lease ws_1.5 lease release auth") != std::string::npos);
  const std::string other = scene.state + "/other";
  base::make_directories(other);
  scene.server.settle();
  run_moorage({"lease", "release", "auth"},
              {scene.server.socket_path(), "", {{"XDG_STATE_HOME", other}}});
  CHECK(scene.server.seen().back().headers.count("moorage-lease") == 0);
}

TEST_CASE("a saved secret is sent only when its lease is named") {
  LeaseScene scene;
  scene.run({"lease", "acquire", "auth"});
  scene.run({"stop", "auth"});
  CHECK(scene.server.seen().back().headers.count("moorage-lease") == 0);
  CHECK(scene.sent({"--lease", "5"}) == "5," + scene.token);
  CHECK(scene.sent({"--lease", "ws_1.5"}) == scene.token);
  CHECK(scene.sent({}, "ws_1.5") == scene.token);
  CHECK(scene.sent({"--lease", "ws_1.5"}, token_of("ws_2.1", 'c')) == scene.token);
  const std::string mine = token_of("ws_2.1", 'c');
  CHECK(scene.sent({}, mine) == mine);
  CHECK(scene.sent({}, "5," + scene.token) == "5," + scene.token);
  // The daemon refuses changes under these: the lease is over or belongs to others.
  CHECK(scene.sent({"--lease", "7"}) == "7");
  CHECK(scene.sent({"--lease", "ws_1.7"}) == "ws_1.7");
}

TEST_CASE("a secret on the command line and a directory that others can read are refused") {
  LeaseScene scene;
  const Ran told = scene.run({"lease", "release", "auth", "--lease", scene.token});
  CHECK(told.code == 1);
  CHECK(told.err.find("everybody can read a command line") != std::string::npos);
  scene.run({"lease", "acquire", "auth"});
  const auto place = std::filesystem::path(scene.files().at(0)).parent_path();
  REQUIRE(chmod(place.c_str(), 0755) == 0);
  const Ran open = scene.run({"lease", "acquire", "auth"});
  CHECK(open.code == 1);
  CHECK(open.err.find("others have access to") != std::string::npos);
  CHECK(scene.server.count("POST /v1/workspaces/auth/lease") == 1);
  CHECK(scene.sent({"--lease", "5"}) == "5");
}
