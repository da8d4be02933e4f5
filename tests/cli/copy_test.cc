#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <set>

#include "base/os/files.h"
#include "cli/client/remote_path.h"
#include "cli/output/text.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::Running;
using test::ScriptedServer;

namespace {

std::string percent_decode(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
    } else {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
  }
  return out;
}

// The files of a workspace: listings and contents by path, and the writes.
struct FakeFiles {
  std::map<std::string, std::string> listings;  // path -> entries
  std::map<std::string, std::string> contents;
  std::map<std::string, std::string> written;  // path -> "mode content", "link target", "dir"
  std::set<std::string> refused;               // unwritable paths: their directory is missing
  std::string cut;                             // a path whose bytes end too early
  std::string endless;                         // one whose bytes never end
  std::string outside;                         // a path outside the workspace
  std::mutex mutex;

  void handle(Call& call) {
    const std::lock_guard lock(mutex);
    const std::string path = percent_decode(call.query("path"));
    const std::string body = call.body();
    if (call.method == "POST") {
      const cli::Json json = cli::Json::parse(body);
      const bool link = call.path == "/v1/workspaces/auth/files/symlink";
      written[json.bytes("path")] = link ? "link " + json.bytes("target") : "dir";
      return call.reply(204, "");
    }
    if (!outside.empty() && path == outside) {
      return call.reply(400, R"({"code":"invalid_argument","message":"')" + outside +
                                 R"(' is not a file of the workspace"})");
    }
    if (call.method == "PUT" && refused.contains(path))
      return call.reply(404, R"({"code":"not_found","message":"open: No such file"})");
    if (call.method == "PUT") {
      written[path] = call.query("mode") + " " + body;
      return call.reply(200, "{}");
    }
    const bool list = call.path == "/v1/workspaces/auth/files";
    if (!list && path == cut) {
      call.begin(200);
      call.chunk("half");
      return call.drop();
    }
    if (!list && path == endless) {
      call.begin(200);
      call.chunk("half");
      return call.wait_until_client_leaves();
    }
    const auto& place = list ? listings : contents;
    if (const auto found = place.find(path); found != place.end()) {
      return call.reply(200, list ? R"({"entries":[)" + found->second + "]}" : found->second);
    }
    if (!list && listings.contains(path))
      return call.reply(409, R"({"code":"conflict","message":"a directory"})");
    if (list && contents.contains(path))
      return call.reply(400, R"({"code":"invalid_argument","message":"a file"})");
    call.reply(404, R"({"code":"not_found","message":"nothing there"})");
  }
};

struct Scene {
  FakeFiles files;
  ScriptedServer server{[this](Call& call) { files.handle(call); }};
  Ran run(const std::vector<std::string>& words) {
    server.settle();
    const Ran ran = run_moorage(words, {server.socket_path(), "", {}});
    server.settle();
    return ran;
  }
  std::string here(const std::string& name) { return server.directory() + "/" + name; }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

uint32_t mode_of(const std::string& path) {
  struct stat found {};
  ::lstat(path.c_str(), &found);
  return found.st_mode;
}

}  // namespace

TEST_CASE("a directory comes out with its modes, links and odd names") {
  Scene scene;
  scene.files.listings["dist"] =
      R"({"name":"run.sh","type":"file","mode":493},{"name":"sub","type":"directory","mode":488},
         {"name":"to-run","type":"symlink","target":"run.sh"},{"name":"sock","type":"socket"},
         {"name":"?","name_b64":")" +
      cli::base64_encode("odd\xff\n") + R"(","type":"file","mode":384})";
  scene.files.listings["dist/sub"] = R"({"name":"setuid","type":"file","mode":2541})";
  scene.files.contents["dist/run.sh"] = "#!/bin/sh\n";
  scene.files.contents["dist/sub/setuid"] = "x";
  scene.files.contents["dist/odd\xff\n"] = "odd";
  const Ran ran = scene.run({"cp", "auth:dist", scene.here("out")});
  CHECK(ran.out == " copied   3 files, 14, 1 link\n");
  CHECK(ran.err ==
        "moorage: 1 entry skipped: devices, sockets or pipes\n"
        "moorage: copied without setuid, setgid and sticky bits: dist/sub/setuid\n");
  CHECK(base::read_file(scene.here("out/run.sh")) == "#!/bin/sh\n");
  CHECK(mode_of(scene.here("out/run.sh")) == (S_IFREG | 0755));
  CHECK(mode_of(scene.here("out/sub")) == (S_IFDIR | 0750));
  CHECK(mode_of(scene.here("out/sub/setuid")) == (S_IFREG | 0755));
  CHECK(S_ISLNK(mode_of(scene.here("out/to-run"))));
  CHECK(base::read_file(scene.here("out/odd\xff\n")) == "odd");
}

TEST_CASE("names and links from a sandbox never lead outside the destination") {
  for (const char* name : {"..", ".", "a/b", "", "/etc/x"}) {
    CAPTURE(name);
    Scene scene;
    scene.files.listings["d"] =
        R"({"name":")" + std::string(name) + R"(","type":"file","mode":420})";
    CHECK(scene.run({"cp", "auth:d", scene.here("out")}).code == 1);
  }
  Scene scene;
  // The same name, first as a link to the outside, then as a directory.
  scene.files.listings["d"] =
      R"({"name":"sub","type":"symlink","target":")" + scene.server.directory() +
      R"("},{"name":"file","type":"symlink","target":")" + scene.here("victim") + R"("})";
  CHECK(scene.run({"cp", "auth:d", scene.here("out")}).code == 0);
  scene.files.listings["d"] =
      R"({"name":"file","type":"file","mode":420},{"name":"sub","type":"directory","mode":493})";
  scene.files.listings["d/sub"] = R"({"name":"escaped","type":"file","mode":420})";
  scene.files.contents["d/file"] = scene.files.contents["d/sub/escaped"] = "x";
  const Ran again = scene.run({"cp", "auth:d/", scene.here("out2")});
  CHECK(again.code == 0);  // "d/" is "d"
  // Into the directory that now has the links.
  ::rename(scene.here("out").c_str(), scene.here("d").c_str());
  CHECK(scene.run({"cp", "auth:d", scene.server.directory()}).code == 1);
  CHECK_FALSE(base::path_exists(scene.here("victim")));
  CHECK_FALSE(base::path_exists(scene.here("escaped")));
}

TEST_CASE("a file goes into an existing directory, otherwise to the new name") {
  Scene scene;
  scene.files.listings[""] = R"({"name":"a.txt","type":"file","mode":416})";
  scene.files.contents["a.txt"] = "content";
  CHECK(scene.run({"cp", "auth:a.txt", scene.here("b.txt")}).code == 0);
  CHECK(mode_of(scene.here("b.txt")) == (S_IFREG | 0640));
  CHECK(scene.run({"cp", "auth:a.txt", scene.server.directory()}).code == 0);
  CHECK(base::read_file(scene.here("a.txt")) == "content");
}

TEST_CASE("a copy that fails or is ended changes no file and adds none") {
  Scene scene;
  scene.files.listings[""] = R"({"name":"cut","type":"file","mode":420},
                                {"name":"endless","type":"file","mode":420})";
  scene.files.listings["d"] = R"({"name":"whole","type":"file","mode":420},
                                 {"name":"cut","type":"file","mode":420})";
  scene.files.contents = {{"cut", ""}, {"endless", ""}, {"outside", ""}, {"d/whole", "new"}};
  scene.files.cut = "cut";
  scene.files.endless = "endless";
  base::make_directories(scene.here("in/d"), 0755);
  const std::string keep = scene.here("in/keep");
  base::write_file(keep, "precious", 0640);
  const auto unchanged = [&] {
    CHECK(base::read_file(keep) == "precious");
    CHECK(mode_of(keep) == (S_IFREG | 0640));
    CHECK(base::list_directory(scene.here("in")).size() == 2);
  };
  for (const char* path : {"auth:cut", "auth:missing"}) {
    CAPTURE(path);
    CHECK(scene.run({"cp", path, keep}).code == 1);
    CHECK(scene.run({"cp", path, scene.here("in/new")}).code == 1);
    unchanged();
  }
  for (const int number : {SIGTERM, SIGINT, SIGKILL}) {
    const size_t before = scene.server.count("GET /v1/workspaces/auth/file");
    Running copy({"cp", "auth:endless", keep}, {scene.server.socket_path(), "", {}});
    while (scene.server.count("GET /v1/workspaces/auth/file") == before) ::usleep(1000);
    ::usleep(100'000);  // some bytes have arrived
    copy.signal(number);
    CHECK(copy.finish().code != 0);
    unchanged();
  }
  scene.files.cut = "d/cut";
  base::write_file(scene.here("in/d/cut"), "precious");
  CHECK(scene.run({"cp", "auth:d", scene.here("in")}).code == 1);
  CHECK(base::read_file(scene.here("in/d/cut")) == "precious");
  CHECK(base::read_file(scene.here("in/d/whole")) == "new");
  CHECK(base::list_directory(scene.here("in/d")).size() == 2);
}

TEST_CASE("a link, a file with several names and a pipe are written through") {
  Scene scene;
  scene.files.contents["a"] = "new";
  const std::string file = scene.here("file"), other = scene.here("other"),
                    link = scene.here("link");
  base::write_file(file, "old and longer");
  REQUIRE(::link(file.c_str(), other.c_str()) == 0);
  REQUIRE(::symlink("file", link.c_str()) == 0);
  CHECK(scene.run({"cp", "auth:missing", link}).code == 1);
  CHECK(scene.run({"cp", "auth:missing", other}).code == 1);
  CHECK(base::read_file(file) == "old and longer");
  CHECK(scene.run({"cp", "auth:a", other}).code == 0);
  CHECK(base::read_file(file) == "new");
  scene.files.contents["a"] = "newer";
  CHECK(scene.run({"cp", "auth:a", link}).code == 0);
  CHECK(base::read_file(other) == "newer");
  CHECK(S_ISLNK(mode_of(link)));
  CHECK(scene.run({"cp", "auth:a", "/dev/stdout"}).out.starts_with("newer"));
  CHECK(scene.run({"cp", "auth:a", "/dev/null"}).code == 0);
  CHECK(S_ISCHR(mode_of("/dev/null")));
}

TEST_CASE("a link replaces a file of its name only when it is complete") {
  Scene scene;
  base::make_directories(scene.here("d/sub"), 0755);
  base::write_file(scene.here("d/file"), "precious");
  scene.files.listings["d"] = R"({"name":"file","type":"symlink","target":""})";
  CHECK(scene.run({"cp", "auth:d", scene.server.directory()}).code == 1);
  CHECK(base::read_file(scene.here("d/file")) == "precious");
  scene.files.listings["d"] = R"({"name":"file","type":"symlink","target":"x"})";
  CHECK(scene.run({"cp", "auth:d", scene.server.directory()}).code == 0);
  CHECK(S_ISLNK(mode_of(scene.here("d/file"))));
  scene.files.listings["d"] = R"({"name":"sub","type":"symlink","target":"x"})";
  CHECK(scene.run({"cp", "auth:d", scene.server.directory()}).code == 1);
  CHECK(base::list_directory(scene.here("d")).size() == 2);
}

TEST_CASE("a tree goes in with modes and links") {
  Scene scene;
  base::make_directories(scene.here("src/deep"), 0755);
  base::write_file(scene.here("src/deep/run"), "go");
  ::chmod(scene.here("src/deep/run").c_str(), 0755);
  ::symlink("deep/run", scene.here("src/link").c_str());
  scene.files.listings["there"] = "";
  CHECK(scene.run({"cp", scene.here("src"), "auth:there"}).out == " copied   1 file, 2, 1 link\n");
  CHECK(scene.files.written ==
        std::map<std::string, std::string>{{"there/src", "dir"},
                                           {"there/src/deep", "dir"},
                                           {"there/src/deep/run", "0755 go"},
                                           {"there/src/link", "link deep/run"}});
  scene.files.written.clear();
  CHECK(scene.run({"cp", scene.here("src/deep/run"), "auth:/home/user/new"}).code == 0);
  CHECK(scene.files.written.at("/home/user/new") == "0755 go");
}

TEST_CASE("cp needs one local and one remote path") {
  Scene scene;
  CHECK(scene.run({"cp", "a", "b"}).code == 1);
  CHECK(has(scene.run({"cp", "a:b", "c:d"}).err, "both paths are in workspaces: a and c"));
  CHECK(has(scene.run({"cp", "auth:b c", "auth:"}).err,
            "hint: copy inside: moorage exec auth -- cp -r 'b c' .\n"));
  scene.files.listings["d"] = "";
  CHECK(has(scene.run({"cp", "auth:d", "-"}).err,
            "moorage: d is a directory\n  hint: moorage exec auth -- tar c d > FILE.tar\n"));
  CHECK_FALSE(cli::parse_remote_path("./a:b"));
  CHECK_FALSE(cli::parse_remote_path("/a:b"));
  CHECK(cli::parse_remote_path("auth:")->path == "");
  CHECK(cli::parse_remote_path("auth:a:b")->path == "a:b");
}

TEST_CASE("the options of cp that copy more are accepted") {
  Scene scene;
  scene.files.contents["a"] = "content";
  for (const char* option : {"-r", "-R", "-a", "-p", "-rp"}) {
    CAPTURE(option);
    CHECK(scene.run({"cp", option, "auth:a", scene.here("b")}).code == 0);
  }
}

TEST_CASE("modes without any bit are kept both ways") {
  Scene scene;
  scene.files.listings[""] = R"({"name":"a","type":"file","mode":0})";
  scene.files.listings["d"] = R"({"name":"a","type":"file","mode":0})";
  scene.files.contents["a"] = scene.files.contents["d/a"] = "content";
  CHECK(scene.run({"cp", "auth:a", scene.here("a")}).code == 0);
  CHECK(mode_of(scene.here("a")) == S_IFREG);
  CHECK(scene.run({"cp", "auth:d", scene.here("d")}).code == 0);
  CHECK(mode_of(scene.here("d/a")) == S_IFREG);
  CHECK(scene.run({"cp", scene.here("a"), "auth:there"}).code == 0);
  CHECK(scene.files.written.at("there") == "0000 content");
}

TEST_CASE("files escapes names, cat prints raw bytes") {
  Scene scene;
  scene.files.listings[""] = R"({"name":"a\u001b","type":"file","mode":420,"size_bytes":2048},
                                {"name":"d","type":"directory","mode":493})";
  scene.files.contents["a"] = "\x1b raw\xff";
  CHECK(scene.run({"files", "auth"}).out ==
        "MODE        SIZE  AGE  NAME\n-rw-r--r--    2K    -  a\\x1b\ndrwxr-xr-x     -    -  d/\n");
  CHECK(scene.run({"cat", "auth:a"}).out == "\x1b raw\xff");
}

TEST_CASE("cp fails when it can copy nothing") {
  Scene scene;
  scene.files.listings["there"] = "";
  base::make_directories(scene.here("src"), 0755);
  REQUIRE(::mkfifo(scene.here("src/fifo").c_str(), 0600) == 0);
  const Ran alone = scene.run({"cp", scene.here("src/fifo"), "auth:there"});
  CHECK(alone.code == 1);
  CHECK(alone.out == "");
  CHECK(alone.err ==
        "moorage: nothing copied: " + scene.here("src/fifo") + " is a device, socket or pipe\n");
  const Ran inside = scene.run({"cp", scene.here("src"), "auth:there"});
  CHECK(inside.code == 0);
  CHECK(inside.err.find("1 entry skipped") != std::string::npos);
}

TEST_CASE("cp names a missing target directory") {
  Scene scene;
  scene.files.refused = {"newdir/file"};
  base::write_file(scene.here("file"), "x");
  const Ran ran = scene.run({"cp", scene.here("file"), "auth:newdir/file"});
  CHECK(ran.code == 1);
  CHECK(ran.err ==
        "moorage: no directory newdir/ in auth\n"
        "  hint: moorage exec auth -- mkdir -p newdir/\n");
}

TEST_CASE("a path outside the workspace is refused") {
  Scene scene;
  scene.files.outside = "/etc";
  const Ran ran = scene.run({"files", "auth", "/etc"});
  CHECK(ran.code == 1);
  CHECK(ran.err == "moorage: '/etc' is not a file of the workspace\n");
}
