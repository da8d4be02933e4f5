#include "base/listeners.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <thread>

using namespace moorage;
using namespace std::chrono_literals;

namespace {

struct Named {
  std::string name;
  std::string* heard;
  void call() { *heard += name; }
};

}  // namespace

TEST_CASE("listeners are called in the order of their registration, while their handles exist") {
  std::string heard;
  Named first{"a", &heard};
  Named second{"b", &heard};
  base::Listeners<Named> listeners;
  auto one = listeners.add(first);
  {
    const auto two = listeners.add(second);
    listeners.each([](Named& listener) { listener.call(); });
    CHECK(heard == "ab");
  }
  listeners.each([](Named& listener) { listener.call(); });
  CHECK(heard == "aba");
  one.reset();
  listeners.each([](Named& listener) { listener.call(); });
  CHECK(heard == "aba");
}

TEST_CASE("a handle may outlive its list") {
  std::string heard;
  Named only{"a", &heard};
  base::Listeners<Named>::Handle handle;
  {
    base::Listeners<Named> listeners;
    handle = listeners.add(only);
  }
  handle.reset();
  CHECK(heard.empty());
}

TEST_CASE("the end of a handle waits for the call that runs, and no other listener waits for it") {
  std::string heard;
  Named slow{"s", &heard};
  Named other{"o", &heard};
  base::Listeners<Named> listeners;
  auto of_slow = listeners.add(slow);
  std::promise<void> inside;
  std::promise<void> leave;
  std::thread caller([&] {
    listeners.each([&](Named&) {
      inside.set_value();
      leave.get_future().wait();
    });
  });
  inside.get_future().wait();
  auto of_other = listeners.add(other);
  of_other.reset();  // does not wait for the slow one
  std::atomic<bool> ended = false;
  auto ending = std::async(std::launch::async, [&] {
    of_slow.reset();
    ended = true;
  });
  CHECK(ending.wait_for(50ms) == std::future_status::timeout);
  CHECK_FALSE(ended);
  leave.set_value();
  ending.get();
  caller.join();
  CHECK(ended);
}

TEST_CASE("a call may come within a call, while the end of the handle waits for both") {
  std::string heard;
  Named only{"a", &heard};
  base::Listeners<Named> listeners;
  auto handle = listeners.add(only);
  std::promise<void> ending;
  std::thread ender;
  listeners.each([&](Named& listener) {
    ender = std::thread([&] {
      ending.set_value();
      handle.reset();
    });
    ending.get_future().wait();
    std::this_thread::sleep_for(10ms);                   // the end waits now, or soon
    listeners.each([](Named& inner) { inner.call(); });  // no call begins once it has ended
    listener.call();
  });
  ender.join();
  CHECK((heard == "a" || heard == "aa"));
  listeners.each([](Named& listener) { listener.call(); });
  CHECK((heard == "a" || heard == "aa"));
}
