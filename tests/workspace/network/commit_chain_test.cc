// Whether a push rewrites history is proved by the hashes of commits, whatever git inside says.
#include "workspace/network/commit_chain.h"

#include <catch2/catch.hpp>

#include "base/digest.h"

using namespace moorage;
using workspace::CommitChain;
using workspace::read_commit_chain;

namespace {

struct Commit {
  std::string name;
  std::string content;
};

Commit commit(const std::vector<std::string>& parents, const std::string& title,
              bool sha256 = false) {
  Commit made;
  made.content = "tree " + std::string(sha256 ? 64 : 40, 'a') + "\n";
  for (const std::string& parent : parents) made.content += "parent " + parent + "\n";
  made.content += "author a <a@a> 1 +0000\n\n" + title + "\n\nparent of all\n";
  std::string object = "commit " + std::to_string(made.content.size());
  object.push_back('\0');
  object += made.content;
  made.name = sha256 ? base::sha256_hex(object) : base::sha1_hex(object);
  return made;
}

std::string batch(const std::vector<Commit>& commits) {
  std::string all;
  for (const Commit& one : commits) {
    all += one.name + " commit " + std::to_string(one.content.size()) + "\n" + one.content + "\n";
  }
  return all;
}

}  // namespace

TEST_CASE("names of commits are those that git gives") {
  const std::string known =
      "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
      "author A <a@a> 0 +0000\ncommitter A <a@a> 0 +0000\n\nx\n";
  const auto chain =
      read_commit_chain("any commit " + std::to_string(known.size()) + "\n" + known + "\n",
                        std::string(40, '1'), "b9be815bb745dd755f60690585d9000d89b9849b");
  CHECK(chain.has_new);
}

TEST_CASE("a chain of commits reaches the old one, through merges and past its end") {
  const bool sha256 = GENERATE(false, true);
  const Commit old = commit({}, "old", sha256);
  const Commit side = commit({}, "side", sha256);
  const Commit one = commit({old.name}, "one", sha256);
  const Commit merge = commit({side.name, one.name}, "Merge it", sha256);
  const CommitChain chain = read_commit_chain(batch({merge, one, side}), old.name, merge.name);
  CHECK(chain.has_new);
  CHECK(chain.reaches);
  CHECK(chain.commits == 3);
  CHECK(chain.title == "Merge it");
  // Cut: what came is enough.
  const std::string whole = batch({merge, one, side});
  CHECK(read_commit_chain(whole.substr(0, whole.size() - 10), old.name, merge.name).reaches);
  CHECK_FALSE(read_commit_chain(batch({merge}), old.name, merge.name).reaches);
  CHECK_FALSE(read_commit_chain(batch({merge, one}), side.name + "0", merge.name).reaches);
}

TEST_CASE("commits that do not have their names prove nothing") {
  const Commit old = commit({}, "old");
  const Commit rewritten = commit({}, "rewritten");
  Commit forged = commit({old.name}, "forged");
  forged.name = rewritten.name;
  CHECK_FALSE(read_commit_chain(batch({forged}), old.name, rewritten.name).has_new);
  const CommitChain both = read_commit_chain(batch({forged, rewritten}), old.name, rewritten.name);
  CHECK(both.has_new);
  CHECK_FALSE(both.reaches);
  // A parent's name in the message, or behind the other headers, is not a parent.
  Commit said = commit({}, "parent " + old.name);
  CHECK_FALSE(read_commit_chain(batch({said}), old.name, said.name).reaches);
}

TEST_CASE("nonsense instead of commits is not a chain") {
  const Commit old = commit({}, "old");
  const Commit one = commit({old.name}, "one");
  const std::string all = GENERATE_COPY(
      std::string(), std::string("\n"), std::string("x"), one.name + " missing\n",
      one.name + " blob 3\nabc\n", one.name + " commit\n" + one.content,
      one.name + " commit -1\n" + one.content, one.name + " commit 99999999999999999999\n",
      one.name + " commit 1000000\n" + one.content, one.name + " commit 3x\n" + one.content,
      std::string(1 << 20, '\n'), std::string(1 << 20, ' '));
  CHECK_FALSE(read_commit_chain(all, old.name, one.name).has_new);
}
