// An export that ends was read back.
#include <algorithm>
#include <catch2/catch.hpp>

#include "workspace/archive/import_check.h"
#include "workspace/archive/whole_archive.h"

using namespace moorage;
using namespace moorage::packs;
using namespace moorage::workspace;

namespace {

struct Place {
  TemporaryDirectory directory;
  std::string from = directory.path() + "/from";
  std::string to = directory.path() + "/to";
  Place() {
    base::make_directories(from, 0755);
    REQUIRE(lchown(from.c_str(), kDiskFirstId, kDiskFirstId) == 0);
  }
};

// A complete archive of a workspace with one empty layer.
ArchiveFacts write_empty_workspace(
    const std::string& upper, ByteSink sink,
    const std::function<void(ArchiveContents&)>& change = [](ArchiveContents&) {}) {
  ArchiveContents contents = empty_workspace(upper);
  change(contents);
  return write_archive(contents, {.level = 3, .threads = 1, .unnamed_file = unnamed_file},
                       std::move(sink));
}

std::string sent(const std::function<void(ReadBack&)>& write) {
  std::string out;
  ReadBack check([&out](std::string_view bytes) { out += bytes; },
                 {.limits = {}, .disk_first_id = 0, .unnamed_file = unnamed_file});
  write(check);
  return out;
}

}  // namespace

TEST_CASE("an export ends only after its output was read back", "[archive]") {
  const Place place;
  std::string good;
  const ArchiveFacts facts =
      write_empty_workspace(place.from, [&](std::string_view bytes) { good += bytes; });
  CHECK(sent([&](ReadBack& check) {
          check.write(good);
          check.finish(facts);
        }) == good);

  std::string out;
  ReadBack damaged([&out](std::string_view bytes) { out += bytes; },
                   {.limits = {}, .disk_first_id = 0, .unnamed_file = unnamed_file});
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  CHECK_THROWS_AS((damaged.write(bad), damaged.finish(facts)), base::Error);
  CHECK(out.size() <= good.size() - kTrailerBytes);

  ArchiveFacts other = facts;
  other.digest[0] = other.digest[0] == '0' ? '1' : '0';
  out.clear();
  ReadBack differs([&out](std::string_view bytes) { out += bytes; },
                   {.limits = {}, .disk_first_id = 0, .unnamed_file = unnamed_file});
  differs.write(good);
  CHECK_THROWS_AS(differs.finish(other), base::Error);
  CHECK(out.size() == good.size() - kTrailerBytes);

  // The client left: destruction must not wait for the end.
  ReadBack left([](std::string_view) {},
                {.limits = {}, .disk_first_id = 0, .unnamed_file = unnamed_file});
  left.write(good.substr(0, 100));
}

TEST_CASE("an export continues if a journal is removed meanwhile", "[archive]") {
  const Place place;
  const std::string kept = place.to + "-output";
  base::write_file(kept, "kept", 0600);
  std::string out;
  ReadBack check([&out](std::string_view bytes) { out += bytes; },
                 {.limits = {}, .disk_first_id = 0, .unnamed_file = unnamed_file});
  check.finish(write_empty_workspace(
      place.from, [&check](std::string_view bytes) { check.write(bytes); },
      [&](ArchiveContents& contents) {
        add_execs(contents, 2);
        contents.journals.of = {base::ExecId{1}, base::ExecId{2}};
        contents.journals.path = [&](base::ExecId exec) {  // output retention removed the other one
          return exec.value == 1 ? kept : place.to + "-removed";
        };
      }));
  std::vector<std::string> paths;
  ArchiveReader reader(from_memory(out), {});
  while (const ArchiveEntry* entry = reader.next()) paths.push_back(entry->path);
  CHECK(std::count(paths.begin(), paths.end(), "journal/ex_1/output") == 1);
  CHECK(std::count(paths.begin(), paths.end(), "journal/ex_2/output") == 0);
}
