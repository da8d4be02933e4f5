// Journals in the warden's own directory, for a client that cannot pass descriptors.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>

#include "raw_http.h"
#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

namespace {

constexpr char kSpool[] = "Moorage-User: root\r\nMoorage-Spool: 1\r\n";

std::string start_json(const std::string& tag, const std::string& script) {
  boost::json::object process{{"cmd", "/bin/sh"}, {"args", {"-c", script}}, {"cwd", "/tmp"}};
  return boost::json::serialize(
      boost::json::object{{"process", std::move(process)}, {"tag", tag}, {"stdin", false}});
}

// Everything that the warden answers to one Start.
std::string start(const WardenProcess& warden, const std::string& json,
                  const std::string& headers = kSpool) {
  RawHttp http(warden.socket_path());
  http.send(stream("Start", json, headers));
  REQUIRE(http.wait_for("\r\n0\r\n\r\n"));
  return http.received();
}

Record spooled(const WardenProcess& warden, const std::string& tag) {
  Journal other(warden.directory() + "/unused-" + tag);
  other.path = warden.spool_path() + "/" + tag;
  return other.wait_for_end();
}

}  // namespace

TEST_CASE("a command without descriptors has its journal in the spool, and runs once") {
  WardenProcess warden(GENERATE(Role::subreaper, Role::process_one));
  const std::string count = warden.directory() + "/count";
  const std::string json =
      start_json("ex_1", "echo out; echo err >&2; echo x >>" + count + "; exit 3");
  CHECK_THAT(start(warden, json), Catch::Contains("\"pid\""));
  const Record record = spooled(warden, "ex_1");
  CHECK(record.first_is_started);
  CHECK(record.output == "out\n");
  CHECK(record.error == "err\n");
  CHECK(record.code() == 3);
  for (int repeat = 0; repeat < 2; ++repeat)
    CHECK_THAT(start(warden, json), Catch::Contains("already_exists"));
  CHECK(warden.client().healthy(5s));
  struct stat status {};
  REQUIRE(::stat(count.c_str(), &status) == 0);
  CHECK(status.st_size == 2);
  REQUIRE(::stat((warden.spool_path() + "/ex_1").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
}

TEST_CASE("a command of the spool that cannot execute ends with 127 in its journal") {
  WardenProcess warden;
  const std::string json =
      R"({"process":{"cmd":"/no/such","cwd":"/tmp"},"tag":"ex_2","stdin":false})";
  start(warden, json);
  const Record record = spooled(warden, "ex_2");
  CHECK(record.code() == 127);
  CHECK(record.failure() == "not_found");
}

TEST_CASE("a spool takes no path as a tag, and no descriptors") {
  WardenProcess warden;
  const std::string tag =
      GENERATE(as<std::string>{}, "", "../ex_1", ".", "..", ".hidden", "a/b", "a b");
  CHECK_THAT(start(warden, start_json(tag, "true")), Catch::Contains("invalid_argument"));
  CHECK_THAT(
      start(warden, start_json("ex_3", "true"), std::string(kSpool) + "Moorage-Journal: 1\r\n"),
      Catch::Contains("invalid_argument"));
  CHECK(::access((warden.spool_path() + "/ex_3").c_str(), F_OK) != 0);
}

TEST_CASE("a full spool waits for its reader, who frees room by punching out what it took") {
  WardenProcess warden;
  constexpr size_t kBytes = 4 << 20;
  const std::string json = start_json("ex_4", "head -c " + std::to_string(kBytes) + " /dev/zero");
  start(warden, json, std::string(kSpool) + "Moorage-Journal-Room: 262144\r\n");
  const base::Fd file(::open((warden.spool_path() + "/ex_4").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(file);
  base::JournalReader reader(file.get());
  size_t output = 0;
  bool ended = false;
  REQUIRE(eventually(
      [&] {
        while (auto frame = reader.next()) {
          CHECK(frame->header.kind != base::FrameKind::gap);
          if (base::is_output(frame->header.kind)) output += frame->payload.size();
          ended = frame->header.kind == base::FrameKind::end;
        }
        const auto taken = static_cast<off_t>(reader.file_position());
        REQUIRE(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, taken) == 0);
        return ended;
      },
      60s));
  CHECK(output == kBytes);
}
