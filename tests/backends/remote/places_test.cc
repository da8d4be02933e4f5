#include "backends/remote/places.h"

#include <catch2/catch.hpp>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"

using namespace moorage;
using namespace moorage::backends;

namespace {

class Scratch {
 public:
  Scratch() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base ? base : "/tmp") + "/moorage-places-XXXXXX";
    base::check(mkdtemp(path_.data()) ? 0 : -1, path_);
  }
  ~Scratch() { base::remove_tree(path_); }
  Scratch(Scratch&&) = delete;
  std::string notes() const { return path_ + "/remote"; }

 private:
  std::string path_;
};

std::vector<PlaceOptions> two() { return {{"a", 2}, {"b", 3}}; }

std::string refusal(Places& places, const std::string& sandbox, const std::string& place) {
  try {
    places.take(sandbox, 1, place);
  } catch (const Error& error) {
    return std::string(code_name(error.code())) + ": " + error.message();
  }
  return "taken";
}

uint32_t used(const Places& places, size_t number) { return places.uses().at(number).used; }

}  // namespace

TEST_CASE("a sandbox gets the place with most room, or the one it names") {
  const Scratch scratch;
  Places places(scratch.notes(), "ssh", two());
  CHECK(places.take("m-sb_1", 1, "").place == "b");
  CHECK(places.take("m-sb_2", 1, "").place == "a");
  CHECK(places.take("m-sb_3", 1, "a").place == "a");
  CHECK(places.take("m-sb_4", 1, "").place == "b");
  CHECK(used(places, 0) == 2);
  CHECK(used(places, 1) == 2);
  CHECK(refusal(places, "m-sb_5", "a") ==
        "resource_exhausted: host a of backend ssh has as many sandboxes as it may: a 2 of 2, b 2 "
        "of 3");
  CHECK(places.take("m-sb_5", 1, "").place == "b");
  CHECK(refusal(places, "m-sb_6", "") ==
        "resource_exhausted: every host of backend ssh has as many sandboxes as it may: a 2 of 2, "
        "b 3 of 3");
  CHECK(refusal(places, "m-sb_6", "c") == "not_found: backend ssh has no host 'c'");
  places.release("m-sb_2");
  CHECK(places.take("m-sb_6", 1, "").place == "a");
}

TEST_CASE("a place that failed last is chosen last, and again after a success") {
  const Scratch scratch;
  Places places(scratch.notes(), "ssh", two());
  places.failed("b", "no route");
  CHECK(places.take("m-sb_1", 1, "").place == "a");
  CHECK(places.uses()[1].last_error == "no route");
  places.succeeded("b", 77);
  CHECK(places.uses()[1].last_error.empty());
  CHECK(places.uses()[1].last_contact_wall_ms == 77);
  CHECK(places.take("m-sb_2", 1, "").place == "b");
  places.failed("b", std::string(9000, 'x'));
  CHECK(places.uses()[1].last_error.size() == 500);
  CHECK(places.take("m-sb_3", 1, "").place == "a");
  CHECK(places.take("m-sb_4", 1, "").place == "b");  // the only one with room
}

TEST_CASE("a note is on disk before its machine, and until it is released") {
  const Scratch scratch;
  {
    Places places(scratch.notes(), "ssh", two());
    places.take("m-sb_1", 4, "a");
    places.take("m-sb_2", 5, "b");
    Places others(scratch.notes(), "e2b", {{"e2b", 1}});
    others.take("m-sb_3", 6, "");
    CHECK(others.notes().size() == 1);
  }
  const auto notes = list_notes(scratch.notes());
  REQUIRE(notes.size() == 3);
  CHECK(notes[0].sandbox == "m-sb_1");
  CHECK(notes[0].place == "a");
  CHECK(notes[0].generation == 4);
  CHECK(notes[2].driver == "e2b");
  Places places(scratch.notes(), "ssh", {{"b", 1}});  // a is no longer configured
  CHECK(places.notes().size() == 2);
  CHECK(places.find("m-sb_1")->place == "a");
  CHECK(used(places, 0) == 1);
  places.release("m-sb_1");
  places.release("m-sb_1");
  CHECK_FALSE(places.find("m-sb_1"));
  remove_note(scratch.notes(), "m-sb_2");
  CHECK(list_notes(scratch.notes()).size() == 1);
}

TEST_CASE("a sandbox keeps its place, with the new generation") {
  const Scratch scratch;
  Places places(scratch.notes(), "ssh", two());
  places.take("m-sb_1", 1, "a");
  const auto again = places.take("m-sb_1", 2, "");
  CHECK(again.place == "a");
  CHECK(list_notes(scratch.notes())[0].generation == 2);
  CHECK(refusal(places, "m-sb_1", "b") == "conflict: a machine of m-sb_1 may still exist on a");
  CHECK(used(places, 0) == 1);
}

TEST_CASE("a damaged note is still a machine that may exist") {
  const Scratch scratch;
  Places(scratch.notes(), "ssh", two()).take("m-sb_1", 1, "");
  for (const std::string text :
       {"", "[]", "{\"driver\":1}", "{\"driver\":\"ssh\",\"place\":\"a\"}"}) {
    base::write_file(scratch.notes() + "/m-sb_1.json", text);
    const auto notes = list_notes(scratch.notes());
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].sandbox == "m-sb_1");
    CHECK(notes[0].driver.empty());
    CHECK_FALSE(notes[0].problem.empty());
  }
  CHECK(list_notes(scratch.notes() + "/none").empty());
}

TEST_CASE("a note that cannot be written takes no room") {
  const Scratch scratch;
  Places places(scratch.notes(), "ssh", {{"a", 1}});
  base::write_file(scratch.notes(), "not a directory");
  CHECK_THROWS(places.take("m-sb_1", 1, ""));
  CHECK(used(places, 0) == 0);
  REQUIRE(unlink(scratch.notes().c_str()) == 0);
  CHECK(places.take("m-sb_1", 1, "").place == "a");
}

TEST_CASE("many starts at once never exceed a place's room") {
  const Scratch scratch;
  Places places(scratch.notes(), "ssh", two());
  std::vector<std::thread> threads;
  for (int n = 0; n < 12; ++n)
    threads.emplace_back([&, n] {
      try {
        places.take("m-sb_" + std::to_string(n), 1, "");
      } catch (const Error&) {  // full, for seven of them
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(used(places, 0) == 2);
  CHECK(used(places, 1) == 3);
  CHECK(list_notes(scratch.notes()).size() == 5);
}

TEST_CASE("the next sandbox of a workspace takes over its paused machine, also after a restart") {
  const Scratch scratch;
  {
    Places places(scratch.notes(), "e2b", {{"e2b", 1}});
    places.take("m-sb_1", 1, "", "ws_1");
    REQUIRE(places.may_keep("m-sb_1"));
    places.keep("m-sb_1");
    CHECK(used(places, 0) == 0);
    CHECK(places.uses().at(0).paused == 1);
    places.take("m-sb_2", 2, "", "ws_2");
    CHECK(places.find("m-sb_2")->machine.empty());  // of another workspace
    CHECK_FALSE(places.may_keep("m-sb_2"));         // as many are paused as may be
    places.release("m-sb_2");
  }
  Places places(scratch.notes(), "e2b", {{"e2b", 1}});
  const MachineNote note = places.take("m-sb_3", 3, "", "ws_1");
  CHECK(note.machine == "m-sb_1");
  CHECK(note.machine_generation == 1);
  CHECK(places.owner_of("m-sb_1") == "m-sb_3");
  CHECK(list_notes(scratch.notes()).size() == 1);
  CHECK(places.uses().at(0).paused == 0);
  places.keep("m-sb_3");
  CHECK(places.take("m-sb_4", 4, "", "ws_1").machine_generation == 1);
}

TEST_CASE("of two notes of one machine the newer one holds") {
  const Scratch scratch;
  std::string older;
  {
    Places places(scratch.notes(), "e2b", {{"e2b", 2}});
    places.take("m-sb_1", 1, "", "ws_1");
    places.keep("m-sb_1");
    older = base::read_file(scratch.notes() + "/m-sb_1.json", 4096);
    places.take("m-sb_2", 2, "", "ws_1");
  }
  base::write_file(scratch.notes() + "/m-sb_1.json", older);  // as after a kill in between
  const Places places(scratch.notes(), "e2b", {{"e2b", 2}});
  CHECK_FALSE(places.find("m-sb_1"));
  CHECK(places.find("m-sb_2"));
  CHECK(list_notes(scratch.notes()).size() == 1);
}

TEST_CASE("a paused machine of other settings waits for nobody") {
  const Scratch scratch;
  {
    Places places(scratch.notes(), "e2b", {{"e2b", 1, "of one template"}});
    places.take("m-sb_1", 1, "", "ws_1");
    places.keep("m-sb_1");
    CHECK(places.find("m-sb_1")->kept);
  }
  CHECK(Places(scratch.notes(), "e2b", {{"e2b", 1, "of one template"}}).find("m-sb_1")->kept);
  Places places(scratch.notes(), "e2b", {{"e2b", 2, "of another"}});
  CHECK_FALSE(places.find("m-sb_1")->kept);
  CHECK(places.take("m-sb_2", 2, "", "ws_1").machine.empty());
  CHECK(places.find("m-sb_1"));  // it is removed as any other that nothing uses
}
