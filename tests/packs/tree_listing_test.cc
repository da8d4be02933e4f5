#include "packs/merged/tree_listing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"

using namespace moorage;

namespace {

class Tree {
 public:
  Tree() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base ? base : "/tmp") + "/moorage-listing-XXXXXX";
    base::check(mkdtemp(path_.data()) ? 0 : -1, path_);
    base::make_directories(path_ + "/a/b");
    write("a/b/one", "1");
    write("two\n\x01", "22");
    base::check(symlink("a\x01", (path_ + "/link").c_str()), "make a link");
  }
  ~Tree() { base::remove_tree(path_); }
  Tree(Tree&&) = delete;

  void write(const std::string& name, const std::string& text) const {
    base::write_file(path_ + "/" + name, text);
    const timespec times[] = {{1, 0}, {1'700'000'000, 5}};
    base::check(utimensat(AT_FDCWD, (path_ + "/" + name).c_str(), times, 0), "set a time");
  }
  size_t differences_from(const Tree& other) const {
    const auto listed = packs::parse_listing(packs::listing_text(packs::list_tree(other.path_)));
    return packs::count_differences(listed, packs::list_tree(path_));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("equal trees have equal lists, and each entry that differs counts once") {
  const Tree here;
  const Tree there;
  CHECK(there.differences_from(here) == 0);
  there.write("a/b/one", "11");  // another size
  CHECK(there.differences_from(here) == 1);
  there.write("new", "");
  unlink((there.path() + "/link").c_str());
  chmod((there.path() + "/a").c_str(), 0711);
  CHECK(there.differences_from(here) == 4);
  there.write("a/b/one", "1");
  CHECK(there.differences_from(here) == 3);
  const timespec now[] = {{1, 0}, {1'700'000'001, 5}};
  utimensat(AT_FDCWD, (there.path() + "/a/b/one").c_str(), now, 0);
  CHECK(there.differences_from(here) == 4);
}

TEST_CASE("text that does not list a tree is refused") {
  const std::string text = packs::listing_text(packs::list_tree(Tree().path()));
  for (size_t size = 1; size < text.size(); ++size) {
    try {
      packs::parse_listing(text.substr(0, size));  // a cut after a record leaves a list
      CHECK(text[size - 1] == '\0');
    } catch (const Error& error) {
      CHECK(error.code() == Code::corrupted);
    }
  }
  const std::string unordered("b\0d\0a\0d\0", 8);
  CHECK_THROWS_AS(packs::parse_listing(unordered), Error);
}
