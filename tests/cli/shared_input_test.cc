#include "cli/stream/shared_input.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "base/os/files.h"

using namespace moorage;
using cli::SharedInput;

TEST_CASE("input of a pipe is copied ahead and taken as far as it was read") {
  const base::Pipe pipe = base::make_pipe();
  base::write_all(pipe.write_end.get(), "one two");
  SharedInput input(pipe.read_end.get());
  char piece[64];
  REQUIRE(input.peek(0, piece, sizeof piece).bytes == 7);
  input.consume(4);
  CHECK(input.consumed() == 4);
  CHECK(base::read_up_to(pipe.read_end.get(), 3) == "two");
  input.consume(8);  // of which nothing is there any more
  CHECK(input.consumed() == 4);
}

TEST_CASE("input of a socket is copied ahead and taken as far as it was read") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd ours(ends[0]);
  Fd theirs(ends[1]);
  REQUIRE(SharedInput::suits(ours.get()));
  SharedInput input(ours.get());
  char piece[64];
  CHECK(input.peek(0, piece, sizeof piece).bytes == 0);
  base::write_all(theirs.get(), "one ");
  REQUIRE(input.peek(0, piece, sizeof piece).bytes == 4);
  base::write_all(theirs.get(), "two three");
  REQUIRE(input.peek(4, piece, sizeof piece).bytes == 9);
  CHECK(std::string(piece, 9) == "two three");
  CHECK_FALSE(input.can_wait(13));
  input.consume(8);
  CHECK(input.consumed() == 8);
  CHECK_FALSE(input.peek(13, piece, sizeof piece).at_end);
  theirs.reset();
  CHECK(input.peek(13, piece, sizeof piece).at_end);
  CHECK(base::read_up_to(ours.get(), 64) == "three");
}

TEST_CASE("taking input never waits, even if another reader was faster") {
  base::Pipe pipe = base::make_pipe();
  const Fd others = base::open_file(base::proc_path(pipe.read_end.get()), O_RDONLY | O_NONBLOCK);
  std::atomic<bool> done = false;
  std::thread other([&] {
    char byte;
    while (!done) [[maybe_unused]] const auto got = ::read(others.get(), &byte, 1);
  });
  const int feed = pipe.write_end.get();
  auto taken = std::async(std::launch::async, [&] {
    SharedInput input(pipe.read_end.get());
    for (int i = 0; i < 50'000; ++i) {
      base::write_all(feed, "x");
      input.consume(input.consumed() + 1);
    }
  });
  CHECK(taken.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  pipe.write_end.reset();  // ends a wait
  taken.wait();
  done = true;
  other.join();
}
