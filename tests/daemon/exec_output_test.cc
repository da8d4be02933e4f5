#include "daemon/routes/exec_output.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "base/wire/output_stream.h"
#include "wired.h"

using namespace moorage;
using namespace moorage::daemon;
using base::FrameKind;
using base::RecordKind;

namespace {

const workspace::Caller kRoot{0};

struct Told {
  std::vector<RecordKind> kinds;
  std::string output;
  std::string standard_error;
  std::string end;
  uint64_t position = 0;
};

void take(Told& told, const std::string& bytes) {
  base::RecordParser parser([&](RecordKind kind, std::string_view payload) {
    told.kinds.push_back(kind);
    if (kind == RecordKind::standard_error) told.standard_error += payload;
    if (kind == RecordKind::standard_output || kind == RecordKind::terminal) told.output += payload;
    if (kind == RecordKind::end) told.end = payload;
    if (kind == RecordKind::position) {
      told.position =
          boost::json::parse({payload.data(), payload.size()}).at("offset").to_number<uint64_t>();
    }
  });
  parser.feed(bytes);
  CHECK_FALSE(parser.in_the_middle());
}

// Reads to the end, or until the source would wait.
std::string drain(BodySource& source, bool* waits = nullptr) {
  std::string all;
  for (;;) {
    const auto step = source.read();
    CHECK(step.bytes.size() <= kPieceBytes + 4096);
    all += step.bytes;
    if (waits) *waits = step.next == BodySource::Next::wait;
    if (step.next != BodySource::Next::more) return all;
  }
}

Told read_all(Wired& wired, base::ExecId exec, const OutputOptions& options) {
  Told told;
  take(told, drain(*stream_output(wired.execs(), kRoot, exec, options).source));
  return told;
}

std::string read_raw(Wired& wired, base::ExecId exec, OutputOptions options) {
  options.raw = true;
  return drain(*stream_output(wired.execs(), kRoot, exec, options).source);
}

// A finished exec: "head", 96 bytes that were not kept, "tail".
base::ExecId make_head_and_tail(Wired& wired) {
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "head");
  wired.write_frame(exec, FrameKind::gap, base::encode_gap({0, 96, 2'000'000'000, 3'000'000'000}));
  wired.write_frame(exec, FrameKind::standard_output, "tail");
  wired.end(exec, 0);
  return exec;
}

}  // namespace

TEST_CASE(
    "an ended exec is read from its journal: position, output in order, end with the record") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::started, "{\"pid\":2}");
  wired.write_frame(exec, FrameKind::standard_output, "out ");
  wired.write_frame(exec, FrameKind::standard_error, "err");
  wired.write_frame(exec, FrameKind::standard_output, "more");
  wired.end(exec, 3);
  const Told told = read_all(wired, exec, {});
  CHECK(told.kinds == std::vector{RecordKind::position, RecordKind::standard_output,
                                  RecordKind::standard_error, RecordKind::standard_output,
                                  RecordKind::end});
  CHECK(told.output == "out more");
  CHECK(told.standard_error == "err");
  CHECK(boost::json::parse(told.end).at("exit_code").as_int64() == 3);
  CHECK(boost::json::parse(told.end).at("state").as_string() == "exited");
}

TEST_CASE("any offset yields exactly the bytes from there, even inside a frame") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "abcde");
  wired.write_frame(exec, FrameKind::standard_output, "fghij");
  wired.end(exec, 0);
  const std::string all = "abcdefghij";
  for (uint64_t offset = 0; offset <= all.size(); ++offset) {
    const Told told = read_all(wired, exec, {.offset = offset});
    CHECK(told.position == offset);
    CHECK(told.output == all.substr(offset));
    CHECK(told.kinds.back() == RecordKind::end);
    CHECK(read_all(wired, exec, {.tail_bytes = offset}).output == all.substr(all.size() - offset));
  }
  CHECK(read_all(wired, exec, {.tail_bytes = 1000}).output == all);
  CHECK_THROWS_WITH(stream_output(wired.execs(), kRoot, exec, {.offset = 11}),
                    Catch::Contains("past the end"));
}

TEST_CASE("raw output is only the bytes, of one stream if requested") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "o1");
  wired.write_frame(exec, FrameKind::standard_error, "e1");
  wired.write_frame(exec, FrameKind::terminal, "t1");
  wired.end(exec, 0);
  CHECK(read_raw(wired, exec, {}) == "o1e1t1");
  CHECK(read_raw(wired, exec, {.standard_error = false}) == "o1t1");
  CHECK(read_raw(wired, exec, {.standard_output = false}) == "e1");
}

TEST_CASE("large frames are split into bounded pieces without loss") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  std::string all;
  for (int i = 0; i < 5; ++i) {
    std::string frame(700'001, static_cast<char>('a' + i));
    wired.write_frame(exec, FrameKind::standard_output, frame);
    all += frame;
  }
  wired.end(exec, 0);
  CHECK(read_all(wired, exec, {}).output == all);
  CHECK(read_all(wired, exec, {.offset = 700'000}).output == all.substr(700'000));
}

TEST_CASE("a follower waits, wakes on growth, and ends with the exec") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  const auto source = stream_output(wired.execs(), kRoot, exec, {.follow = true}).source;
  std::atomic<int> woken{0};
  source->start([&] { woken += 1; });
  bool waits = false;
  Told told;
  take(told, drain(*source, &waits));
  CHECK(waits);
  wired.write_frame(exec, FrameKind::standard_output, "live");
  CHECK(soon([&] { return woken > 0; }));
  take(told, drain(*source, &waits));
  CHECK(told.output == "live");
  CHECK(waits);
  CHECK(source->endless());
  wired.end(exec, 0);
  take(told, drain(*source, &waits));
  CHECK_FALSE(waits);
  CHECK(told.kinds.back() == RecordKind::end);
}

TEST_CASE("without follow a running exec is read up to now, without an end") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "so far");
  const Told told = read_all(wired, exec, {});
  CHECK(told.output == "so far");
  CHECK(told.kinds.back() == RecordKind::standard_output);
}

TEST_CASE("the spool limit is reported at its offset") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "kept");
  wired.write_frame(exec, FrameKind::limit, "");
  wired.end(exec, 0);
  const Told told = read_all(wired, exec, {});
  CHECK(told.kinds == std::vector{RecordKind::position, RecordKind::standard_output,
                                  RecordKind::limit, RecordKind::end});
  CHECK(read_raw(wired, exec, {}) == "kept");
}

TEST_CASE("an exec cut before it had a journal has no output, but an end") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0), false);
  state_db::ExecOutcome outcome;
  outcome.state = state_db::ExecState::interrupted;
  state_db::ExecTable(wired.store()).finish(exec, outcome);
  const Told told = read_all(wired, exec, {.follow = true});
  CHECK(told.kinds == std::vector{RecordKind::position, RecordKind::end});
  CHECK(boost::json::parse(told.end).at("state").as_string() == "interrupted");
}

TEST_CASE("another user's exec does not exist, neither its output nor its wait") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 1000));
  const workspace::Caller owner{1000};
  const workspace::Caller other{1001};
  CHECK_NOTHROW(stream_output(wired.execs(), owner, exec, {}));
  CHECK_THROWS_WITH(stream_output(wired.execs(), other, exec, {}), Catch::Contains("no exec"));
  CHECK_THROWS_AS(wait_for_end(wired.execs(), other, exec, std::chrono::seconds(1))->read(),
                  base::Error);
}

TEST_CASE(
    "waiting holds no thread: it says when to poll again, and answers at the end or the timeout") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  const auto source = wait_for_end(wired.execs(), kRoot, exec, std::chrono::seconds(60));
  std::atomic<int> woken{0};
  source->start([&] { woken += 1; });
  const auto step = source->read();
  CHECK(step.next == BodySource::Next::wait);
  CHECK(step.again_after.has_value());
  const auto late = wait_for_end(wired.execs(), kRoot, exec, std::chrono::milliseconds(0))->read();
  CHECK(boost::json::parse(late.bytes).at("state").as_string() == "running");
  wired.end(exec, 7);
  CHECK(soon([&] { return woken > 0; }));
  const auto last = source->read();
  CHECK(last.next == BodySource::Next::end);
  CHECK(boost::json::parse(last.bytes).at("exit_code").as_int64() == 7);
}

TEST_CASE("output after a command's end can be read, with its time and its size") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "said");
  wired.end(exec, 0);
  wired.write_frame(exec, FrameKind::standard_output, " late");
  const Told without = read_all(wired, exec, {});
  CHECK(without.output == "said");
  CHECK_FALSE(boost::json::parse(without.end).as_object().contains("late_bytes"));
  const Told with = read_all(wired, exec, {.late = true});
  CHECK(with.output == "said late");
  CHECK(with.kinds == std::vector{RecordKind::position, RecordKind::standard_output,
                                  RecordKind::position, RecordKind::standard_output,
                                  RecordKind::end});
  CHECK(with.position == 4);
  CHECK(boost::json::parse(with.end).at("late_bytes").to_number<uint64_t>() == 5);
  CHECK(boost::json::parse(with.end).at("output_bytes").to_number<uint64_t>() == 4);
  CHECK(read_all(wired, exec, {.offset = 6, .late = true}).output == "ate");
  CHECK(read_raw(wired, exec, {.late = true}) == "said late");
  CHECK_THROWS_WITH(stream_output(wired.execs(), kRoot, exec, {.offset = 10, .late = true}),
                    Catch::Contains("past the end"));
}

TEST_CASE("a reader of missing output gets the offset of the next output") {
  Wired wired;
  const auto exec = make_head_and_tail(wired);
  for (const uint64_t offset : {0u, 4u, 50u}) {
    const Told told = read_all(wired, exec, {.offset = offset});
    CHECK(told.output == (offset == 0 ? "headtail" : "tail"));
    CHECK(told.position == 100);
    CHECK(boost::json::parse(told.end).at("output_bytes").to_number<uint64_t>() == 104);
    CHECK(boost::json::parse(told.end).at("omitted_bytes").to_number<uint64_t>() == 96);
  }
  CHECK(read_all(wired, exec, {.tail_bytes = 4}).output == "tail");
  CHECK(read_raw(wired, exec, {}) == "headtail");
}

TEST_CASE("raw bytes come with a list of their gaps") {
  Wired wired;
  const auto exec = make_head_and_tail(wired);
  wired.write_frame(exec, FrameKind::gap, base::encode_gap({0, 6, 4'000'000'000, 5'000'000'000}));
  wired.write_frame(exec, FrameKind::standard_output, "late");
  const auto gaps = [&](const OutputOptions& options) {
    std::vector<std::pair<uint64_t, uint64_t>> told;
    for (const auto& gap : stream_output(wired.execs(), kRoot, exec, options).gaps)
      told.emplace_back(gap.offset, gap.end);
    return told;
  };
  using Gaps = std::vector<std::pair<uint64_t, uint64_t>>;
  CHECK(gaps({.raw = true}) == Gaps{{4, 100}});
  CHECK(gaps({.offset = 50, .raw = true}) == Gaps{{50, 100}});
  CHECK(gaps({.tail_bytes = 4, .raw = true}).empty());
  CHECK(gaps({.late = true, .raw = true}) == Gaps{{4, 100}, {104, 110}});
  CHECK(gaps({.late = true}).empty());  // visible in the records
  CHECK(read_raw(wired, exec, {.offset = 50, .late = true}) == "taillate");
  wired.remove_journal(exec);
  CHECK(gaps({.offset = 1, .raw = true}) == Gaps{{1, 104}});
}

TEST_CASE("a gap that appears while raw bytes are read is an error, not a silent join") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "head");
  const auto body = stream_output(wired.execs(), kRoot, exec, {.follow = true, .raw = true});
  CHECK(body.gaps.empty());
  CHECK(body.source->read().bytes == "head");
  wired.write_frame(exec, FrameKind::gap, base::encode_gap({0, 96, 2'000'000'000, 3'000'000'000}));
  wired.write_frame(exec, FrameKind::standard_output, "tail");
  CHECK_THROWS_WITH(body.source->read(), Catch::Contains("bytes 4 to 100"));
  wired.end(exec, 0);
}

TEST_CASE("a reader of removed output gets its end offset") {
  Wired wired;
  const auto exec = wired.make_exec(wired.make_workspace("a", 0));
  wired.write_frame(exec, FrameKind::standard_output, "gone");
  wired.end(exec, 3);
  wired.remove_journal(exec);
  const Told told = read_all(wired, exec, {.offset = 1});
  CHECK(told.kinds == std::vector{RecordKind::position, RecordKind::position, RecordKind::end});
  CHECK(told.position == 4);
  CHECK(boost::json::parse(told.end).at("exit_code").as_int64() == 3);
}
