// The command line refuses with a reason: it guesses nothing and drops nothing silently.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::RunOptions;
using test::ScriptedServer;

namespace {

using Words = std::vector<std::string>;

// A daemon that accepts every request.
struct Scene {
  ScriptedServer server{[](Call& call) {
    call.body();
    call.reply(200, "{}", test::json_header());
  }};
  Ran run(const Words& words) { return run_moorage(words, {server.socket_path(), "", {}}); }
  // The message appears, and the daemon saw no request.
  void refuses(const Words& words, const std::string& message) {
    CAPTURE(words);
    const Ran ran = run(words);
    CHECK(ran.code != 0);
    CHECK(ran.err.find(message) != std::string::npos);
    CAPTURE(ran.err);
    CHECK(server.seen().empty());
  }
};

}  // namespace

TEST_CASE("an option needs a value") {
  Scene scene;
  for (const char* option : {"--name", "--ref", "--branch", "--repo", "--from", "--memory",
                             "--cpus", "--pids", "--backend", "--image", "--label"}) {
    const std::string name = option, message = name == "--label" ? name : name + " needs a value";
    scene.refuses({"create", "--repo", "u", name, ""}, message);
    scene.refuses({"create", name + "=", "--repo", "u"}, name + " needs a value");
  }
  for (const char* option : {"--timeout", "--cwd", "--user"})
    scene.refuses({"exec", "a", option, "", "--", "true"}, std::string(option) + " needs a value");
  scene.refuses({"undelete", "a", "--name", ""}, "--name needs a value");
  scene.refuses({"logs", "ex_1", "--since-offset", ""}, "--since-offset needs a value");
  scene.refuses({"repo", "fetch", ""}, "REPO is empty");
  scene.refuses({"repo", "add", ""}, "URL is empty");
  scene.refuses({"cp", "", "a:b"}, "FROM is empty");
  CHECK(scene.run({"exec", "a", "-d", "--", "sh", "--name=", ""}).code ==
        0);  // options of the sandbox's command
}

TEST_CASE("--from takes the checked-out commit, so --ref is refused with it") {
  Scene scene;
  scene.refuses({"create", "--from", "/", "--ref", "main"},
                "--ref and --from exclude each other: --from takes the checked-out commit");
}

TEST_CASE("an unknown command is refused with the one that was probably meant") {
  Scene scene;
  scene.refuses({"bla"}, "there is no command 'bla'\n  hint: moorage --help lists the commands\n");
  scene.refuses({"lss"}, "there is no command 'lss'\n  hint: did you mean: moorage ls\n");
  scene.refuses({"--socket", "x", "creat", "--repo", "u"}, "did you mean: moorage create\n");
  scene.refuses({"repo", "fetsh", "x"},
                "there is no command 'repo fetsh'\n  hint: did you mean: moorage repo fetch\n");
  scene.refuses({"repo"}, "hint: moorage repo --help");
}

TEST_CASE("a command's name in other programs leads to it") {
  Scene scene;
  const auto leads = [&](const Words& words, const std::string& to) {
    scene.refuses(words, "hint: did you mean: moorage " + to + "\n");
  };
  leads({"del", "a"}, "rm");
  leads({"dir"}, "ls");
  leads({"ssh", "a"}, "shell");
  leads({"repo", "drop", "r"}, "repo rm");
  leads({"fetch", "r"}, "repo fetch");
}

TEST_CASE("an unknown option is named, with the way out") {
  Scene scene;
  scene.refuses({"exec", "--frob", "odd", "ls"}, "option --frob\n  hint: moorage exec --help\n");
  scene.refuses({"exec", "odd", "-z", "--", "ls", "-z"},
                "option -z\n  hint: moorage exec --help\n");
  scene.refuses({"stop", "odd", "--no-hok"}, "did you mean --no-hook? moorage stop --help\n");
  scene.refuses({"show", "a", "b"}, "unexpected argument 'b'\n  hint: moorage show --help\n");
  scene.refuses({"show", "--jsn"},
                "moorage show has no option --jsn\n  hint: did you mean --json? ");
  scene.refuses({"exec", "--user"}, "--user needs a value\n  hint: moorage exec --help\n");
}

TEST_CASE("help on an unknown word suggests the nearest topic or command") {
  Scene scene;
  scene.refuses({"help", "snapshosts"}, "did you mean: moorage help snapshots\n");
  scene.refuses({"help", "exek"}, "did you mean: moorage help exec\n");
  scene.refuses({"help", "repositorys"}, "did you mean: moorage help repositories\n");
  scene.refuses({"help", "del"}, "did you mean: moorage help rm\n");
  scene.refuses({"help", "quux"},
                "there is no topic or command 'quux'\n  hint: moorage help lists the topics\n");
}

TEST_CASE("groups of commands have examples in their help") {
  Scene scene;
  CHECK(scene.run({"repo", "--help"}).out.find("Example:\n  moorage repo add https://") !=
        std::string::npos);
  CHECK(scene.run({"rescue", "--help"}).out.starts_with("When state.db is damaged, "));
  CHECK(scene.run({"help", "rescue"}).out == scene.run({"rescue", "--help"}).out);
  CHECK(scene.run({"config", "--help"}).out.find("Example:\n  moorage config show\n") !=
        std::string::npos);
}

TEST_CASE("invalid and too large numbers are refused before anything is sent") {
  Scene scene;
  for (const char* number : {"nan", "inf", "-1", "2x", "0", "0.001", "4097"})
    scene.refuses({"create", "--repo", "u", "--cpus", number}, "--cpus must be from 0.01 to 4096");
  // Also with a directory that cannot be read: a wrong limit is refused before that.
  for (const char* size : {"99999999999G", "2000T", "0", "none", "default", "lots", "15M"}) {
    scene.refuses({"create", "--from", "/nonexistent", "--memory", size},
                  std::string("--memory must be from 16M to 1024T, not '") + size + "'");
  }
  for (const char* size : {"2000T", "1K", "lots"})
    scene.refuses({"set", "a", "--disk", size}, "--disk must be from 1M to 1024T, or none");
  for (const char* number : {"0", "3", "4.5", "none", "4194305"})
    scene.refuses({"set", "a", "--pids", number}, "--pids must be from 4 to 4194304");
  scene.refuses({"set", "a", "--disk-files", "99"}, "--disk-files must be from 100 to");
  for (const char* number : {"-1", "2.5", "x"})
    scene.refuses({"fork", "a", "--count", number},
                  "--count: '" + std::string(number) + "' is not");
  scene.refuses({"exec", "a", "--timeout", "0", "--", "x"}, "--timeout: '0' is out of range");
}

TEST_CASE("a refusal of the daemon names the option that was typed") {
  const auto err = [](const std::string& message, const Words& words) {
    ScriptedServer server([&](Call& call) {
      call.body();
      call.reply(400, R"({"code":"invalid_argument","message":")" + message + "\"}",
                 test::json_header());
    });
    return run_moorage(words, {server.socket_path(), "", {}}).err;
  };
  const std::string count = "count must be an integer from 1 to 100";
  for (const char* number : {"0", "99999"})
    CHECK(err(count, {"fork", "a", "--count", number}) == "moorage: --" + count + "\n");
  CHECK(err(count, {"fork", "a"}) == "moorage: " + count + "\n");
  CHECK(err("base must be work or head, not 'x'", {"diff", "a", "--base", "x"})
            .starts_with("moorage: --base must be work or head"));
}

TEST_CASE("cat needs a file") {
  Scene scene;
  scene.refuses({"cat", "auth:"}, "no file after the colon in 'auth:'");
}

TEST_CASE("an unreadable directory is named") {
  Scene scene;
  const std::string file = scene.server.directory() + "/file";
  base::write_file(file, "");
  scene.refuses({"create", "--from", file}, file);
}

TEST_CASE("an unusable socket is refused with the reason") {
  Scene scene;
  const std::string file = scene.server.directory() + "/file";
  base::write_file(file, "");
  scene.refuses({"--socket", file, "ls"}, file + ": not a socket");
  const std::string long_path = scene.server.directory() + "/" + std::string(100, 'x');
  base::write_file(long_path, "");
  scene.refuses({"--socket", long_path, "ls"}, "not a socket");
  ::unlink(long_path.c_str());
  {
    const base::Fd place = base::open_file(scene.server.directory(), O_PATH | O_DIRECTORY);
    const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string(100, 'x').copy(address.sun_path, 100);
    REQUIRE(::fchdir(place.get()) == 0);
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    scene.refuses({"--socket", long_path, "ls"}, "the name is too long");
    REQUIRE(::chdir("/") == 0);
  }
  if (::geteuid() != 0) return;  // root may open any socket
  const gid_t group = 4'000'003;
  REQUIRE(::chown(scene.server.socket_path().c_str(), 0, group) == 0);
  REQUIRE(::chmod(scene.server.socket_path().c_str(), 0660) == 0);
  REQUIRE(::chmod(scene.server.directory().c_str(), 0711) == 0);
  const std::string program = scene.server.directory() + "/moorage";
  base::write_file(program, base::read_file(MOORAGE_PROGRAM, 1 << 30));
  REQUIRE(::chmod(program.c_str(), 0755) == 0);
  const std::string command =
      "exec 2>&1; exec setpriv --reuid=65533 --regid=65533 --clear-groups " + program +
      " --socket " + scene.server.socket_path() + " ls";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char text[1000] = {};
  const size_t got = ::fread(text, 1, sizeof text - 1, pipe);
  ::pclose(pipe);
  CHECK(std::string(text, got).find("join the group 4000003: ") != std::string::npos);
}

TEST_CASE("a refusal names the option that was typed, not the field of the API") {
  const auto refused = [](const std::string& message, const Words& words) {
    ScriptedServer server{[&](Call& call) {
      call.body();
      call.reply(400, R"({"code":"invalid_argument","message":")" + message + R"("})",
                 test::json_header());
    }};
    return run_moorage(words, {server.socket_path(), "", {}}).err;
  };
  const Words set{"set", "a", "--pids", "8", "--max-execs=0"};
  CHECK(refused("limits.pids is below 4", set) == "moorage: --pids is below 4\n");
  CHECK(refused("the field 'max_execs' must be more.", set) ==
        "moorage: --max-execs must be more.\n");
  CHECK(refused("limits.cpus is below 1", set) == "moorage: limits.cpus is below 1\n");
  CHECK(refused("the field 'ttl_s' must be less", {"lease", "run", "a", "--ttl", "9", "--",
                                                   "true"}) == "moorage: --ttl must be less\n");
  CHECK(refused("the name is wrong, max_execs_x too", {"create", "--repo", "u", "--name", "x"}) ==
        "moorage: the name is wrong, max_execs_x too\n");
}

TEST_CASE("a wrong time for --snapshot lists the possible ones") {
  Scene scene;
  scene.refuses({"set", "a", "--snapshot", "always"},
                "--snapshot takes before-exec, on-stop, a time like 10m, or manual; not 'always'");
}
