#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>

#include "base/os/open_beneath.h"
#include "packs/tar_fixture.h"

using namespace moorage;
using namespace moorage::packs;

namespace {

struct Scene {
  TemporaryDirectory directory;
  std::string from = directory.path() + "/from";
  std::string to = directory.path() + "/to";

  Scene() {
    base::make_directories(from, 0755);
    base::make_directories(to, 0755);
    own("");
  }

  std::string at(const std::string& path) const { return from + "/" + path; }
  void own(const std::string& path, uint32_t id = kAgent) const {
    REQUIRE(lchown(at(path).c_str(), kDiskFirstId + id, kDiskFirstId + id) == 0);
  }
  void file(const std::string& path, const std::string& bytes, mode_t mode = 0644) const {
    const base::Fd fd = base::open_file(at(path), O_WRONLY | O_CREAT | O_EXCL, 0600);
    base::write_all(fd.get(), bytes);
    own(path);
    REQUIRE(chmod(at(path).c_str(), mode) == 0);
  }
  void make_directory(const std::string& path, mode_t mode = 0755) const {
    REQUIRE(mkdir(at(path).c_str(), 0700) == 0);
    own(path);
    REQUIRE(chmod(at(path).c_str(), mode) == 0);
  }
  void date(const std::string& path, int64_t seconds, long nanoseconds) const {
    const timespec times[2] = {{1, 1}, {seconds, nanoseconds}};
    REQUIRE(utimensat(AT_FDCWD, at(path).c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
  }
  LayerPart part() const {
    LayerPart part;
    part.prefix = "layers/0/tree";
    part.uppers = {from};
    part.disk_first_id = kDiskFirstId;
    return part;
  }
  void round_trip() const {
    const TreeManifest before(from);
    ArchiveFacts facts;
    const std::string bytes = archive_part(part(), &facts);
    const ArchiveFacts found = restore_part(bytes, to);
    CHECK(found.digest == facts.digest);
    CHECK(found.entries == facts.entries);
    CHECK(found.stream.sha256 == facts.stream.sha256);
    CHECK(found.stream.sha256 == base::sha256_hex(bytes));
    CHECK(found.stream.bytes == bytes.size());
    const TreeManifest after(to);
    CHECK(before.lines == after.lines);
  }
};

std::string damage(std::string bytes, size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  return bytes;
}

std::string why(const std::function<void()>& body) {
  try {
    body();
  } catch (const base::Error& error) {
    return std::string(base::code_name(error.code())) + ": " + error.message();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("a tree nested too deep is refused before the first byte is written", "[archive]") {
  const Scene scene;
  scene.file("a", "first");
  base::Fd at = base::open_directory(scene.from);
  for (unsigned depth = 0; depth < kMaxArchiveDepth; ++depth) {
    REQUIRE(mkdirat(at.get(), "d", 0755) == 0);
    at = base::open_directory_beneath(at.get(), "d");
    REQUIRE(fchown(at.get(), kDiskFirstId, kDiskFirstId) == 0);
  }
  require_archivable_depth(scene.part());
  scene.round_trip();
  REQUIRE(mkdirat(at.get(), "d", 0755) == 0);
  CHECK_THAT(why([&] { require_archivable_depth(scene.part()); }),
             Catch::Matchers::StartsWith("unsupported: layers/0/tree/d/d/d") &&
                 Catch::Matchers::EndsWith("is nested deeper than 900 directories"));
}

TEST_CASE("an archive preserves names, types, modes, owners, times and links", "[archive]") {
  const Scene scene;
  int64_t second = -5;
  for (const std::string& name :
       {std::string("a\nb"), std::string("\x1b[31mred"), std::string("\xff\xfe not utf-8"),
        std::string(255, 'n'), std::string("-rf"), std::string("--"), std::string(" "),
        std::string("a\\b"), std::string("\xc3\xa4"), std::string("a=b"), std::string("\r"),
        std::string("index.jsonl"), std::string("...")}) {
    scene.file(name, "content of " + name);
    scene.date(name, second++, 123456789);
    const std::string below = name.size() > 250 ? std::string(255, 'd') : name + " d";
    scene.make_directory(below);
    scene.file(below + "/" + name, "below");
    scene.date(below, second++, 1);
  }
  scene.file("suid", "x", 04755);
  scene.file("none", "", 0);
  scene.file("rooted", "x", 06711);
  scene.own("rooted", 0);
  REQUIRE(chmod(scene.at("rooted").c_str(), 06711) == 0);
  scene.make_directory("sticky", 03777);
  scene.make_directory("closed", 0);
  scene.file("closed/in", "in a closed one");
  REQUIRE(link(scene.at("suid").c_str(), scene.at("closed/linked").c_str()) == 0);
  REQUIRE(link(scene.at("suid").c_str(), scene.at("zz").c_str()) == 0);
  REQUIRE(symlink("/etc/passwd", scene.at("sym\nlink").c_str()) == 0);
  scene.own("sym\nlink", 65535);
  scene.date("sym\nlink", 1234567890, 987654321);
  REQUIRE(symlink(std::string(4000, 't').c_str(), scene.at("long").c_str()) == 0);
  scene.own("long");
  REQUIRE(mkfifo(scene.at("fifo").c_str(), 0620) == 0);
  scene.own("fifo");
  REQUIRE(mknod(scene.at("socket").c_str(), S_IFSOCK | 0755, 0) == 0);
  scene.own("socket");
  scene.date("socket", 77, 7);
  REQUIRE(mknod(scene.at("gone").c_str(), S_IFCHR, 0) == 0);
  REQUIRE(lchown(scene.at("gone").c_str(), kDiskFirstId + 65536, kDiskFirstId + 65536) == 0);
  scene.make_directory("opaque");
  REQUIRE(setxattr(scene.at("opaque").c_str(), "trusted.overlay.opaque", "y", 1, 0) == 0);
  scene.date("closed", 4'000'000'000, 5);
  scene.date("", 99, 100'000'000);
  scene.round_trip();
}

TEST_CASE("an archive preserves extended attributes, with inside ids", "[archive]") {
  const Scene scene;
  scene.file("file", "x");
  scene.make_directory("dir");
  const std::string binary("\0\xff\n=", 4);
  for (const char* path : {"file", "dir"}) {
    REQUIRE(setxattr(scene.at(path).c_str(), "user.a=b \xff", binary.data(), 4, 0) == 0);
    REQUIRE(setxattr(scene.at(path).c_str(), "user.empty", "", 0, 0) == 0);
  }
  vfs_ns_cap_data capability{};
  capability.magic_etc = VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE;
  capability.data[0].permitted = 1 << CAP_NET_RAW;
  capability.rootid = kDiskFirstId;
  REQUIRE(setxattr(scene.at("file").c_str(), "security.capability", &capability, sizeof capability,
                   0) == 0);
  // user::rwx, user:D+5:r--, group::r-x, mask::rwx, other::---
  struct Acl {
    uint32_t version = 2;
    struct {
      uint16_t tag, perm;
      uint32_t id;
    } entries[5] = {{0x01, 7, ~0U},
                    {0x02, 4, kDiskFirstId + 5},
                    {0x04, 5, ~0U},
                    {0x10, 7, ~0U},
                    {0x20, 0, ~0U}};
  } acl;
  for (const char* path : {"file", "dir"}) {
    REQUIRE(setxattr(scene.at(path).c_str(), "system.posix_acl_access", &acl, sizeof acl, 0) == 0);
  }
  REQUIRE(setxattr(scene.at("dir").c_str(), "system.posix_acl_default", &acl, sizeof acl, 0) == 0);
  scene.file("dir/below", "inherited an access list");
  scene.round_trip();

  const std::string bytes = archive_part(scene.part());
  ArchiveReader reader(from_memory(bytes), {});
  while (const ArchiveEntry* entry = reader.next()) {
    if (entry->path != "layers/0/tree/file") continue;
    CHECK(entry->attributes.at("security.capability").substr(20) == std::string(4, '\0'));
    CHECK(entry->uid == kAgent);
  }
}

TEST_CASE("holes are neither read nor written nor lost", "[archive]") {
  const Scene scene;
  const auto began = std::chrono::steady_clock::now();
  const auto sparse = [&](const std::string& name, off_t size,
                          const std::vector<std::pair<off_t, std::string>>& data) {
    scene.file(name, "");
    const base::Fd fd = base::open_file(scene.at(name), O_WRONLY);
    REQUIRE(ftruncate(fd.get(), size) == 0);
    for (const auto& [offset, bytes] : data) {
      REQUIRE(pwrite(fd.get(), bytes.data(), bytes.size(), offset) ==
              static_cast<ssize_t>(bytes.size()));
    }
  };
  sparse("hole", 10LL << 30, {});
  sparse("mixed", 10LL << 30,
         {{0, "head"}, {5LL << 30, std::string(100'000, 'm')}, {(10LL << 30) - 4, "tail"}});
  sparse("ends-in-a-hole \xff", 9LL << 30, {{1 << 20, "middle"}});
  sparse("small", 300'000, {{200'000, "x"}});
  std::vector<std::pair<off_t, std::string>> many;
  for (off_t i = 0; i < 3000; ++i) many.emplace_back(i * 65536, "y");
  sparse("many", 3000 * 65536, many);
  ArchiveFacts facts;
  const std::string bytes = archive_part(scene.part(), &facts);
  CHECK(bytes.size() < 1 << 20);
  scene.round_trip();
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
}

TEST_CASE("a flipped bit is detected anywhere", "[archive]") {
  const Scene scene;
  for (int i = 0; i < 40; ++i) {
    std::string bytes;
    for (int j = 0; j < 2000; ++j) bytes += static_cast<char>((i * 7919 + j * j * 31) >> (j % 5));
    scene.file("file-" + std::to_string(i), bytes);
  }
  const std::string good = archive_part(scene.part());
  REQUIRE(good.size() > 1000);
  size_t named = 0;
  size_t tried = 0;
  for (size_t at = 0; at < good.size(); at += 97) {
    const TemporaryDirectory place;
    const std::string text = why([&] { restore_part(damage(good, at), place.path()); });
    INFO(at << ": " << text);
    CHECK(text != "nothing was thrown");
    ++tried;
    named += text.find("file-") != std::string::npos;
  }
  CHECK(named > tried / 2);
  for (const size_t cut : {size_t{0}, size_t{10}, good.size() / 2, good.size() - 1}) {
    const TemporaryDirectory place;
    CHECK(why([&] { restore_part(good.substr(0, cut), place.path()); }).starts_with("corrupted"));
  }
  const TemporaryDirectory place;
  CHECK(why([&] { restore_part(good + "x", place.path()); }).starts_with("corrupted"));
}

TEST_CASE("an entry that changed before compression is named", "[archive]") {
  // Damage without an archive checksum: the same length, other bytes.
  const std::string good = write_archive([](ArchiveWriter& writer) {
    writer.put("manifest.json", "{}");
    writer.put("git/refs", "one");
  });
  std::string tar;
  Decompressor decompressor(from_memory(good));
  for (std::string_view piece; !(piece = decompressor.next()).empty();) tar += piece;
  const size_t at = tar.find("one");
  REQUIRE(at != std::string::npos);
  tar.replace(at, 3, "two");
  std::string bad;
  Compressor compressor(3, 1, [&](std::string_view piece) { bad += piece; });
  compressor.add(tar);
  compressor.finish();
  ArchiveReader reader(from_memory(bad), {});
  const std::string text = why([&] {
    while (reader.next()) {
    }
  });
  CHECK(text == "corrupted: the archive is damaged: git/refs differs from what was written");
}
