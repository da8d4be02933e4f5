// The only header that includes Asio and Beast, for the files with coroutines: connection.cc,
// reply_writer.cc, server.cc. One thread runs the loop and owns everything here but Wake's handle.
// GCC 12 destroys temporaries and lambdas of a co_await expression twice: name them first.
#pragma once

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "daemon/http/worker_pools.h"

namespace moorage::daemon {

namespace asio = boost::asio;
namespace beast = boost::beast;

using Stream = beast::basic_stream<asio::local::stream_protocol>;
template <typename T = void>
using Awaitable = asio::awaitable<T>;
inline constexpr auto kAsTuple = asio::as_tuple(asio::use_awaitable);

// Runs `work` on a lane and resumes on the loop with its result or exception. `work` and `share`
// are borrowed: the waiting coroutine keeps them alive. Throws resource_exhausted on a full lane.
template <typename Work>
Awaitable<std::invoke_result_t<Work&>> on_lane(WorkerPools& worker_pools, Lane lane,
                                               const base::Share& share, Work& work) {
  using Result = std::invoke_result_t<Work&>;
  const auto loop = co_await asio::this_coro::executor;
  std::optional<Result> result;
  std::exception_ptr error;
  auto initiate = [&](auto handler) {
    // std::function needs a copyable callable, and a completion handler is not copyable. The lane
    // releases it before the loop runs it, so only the loop's thread runs and destroys it.
    auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    auto step = [&work, &result, &error, loop, resume]() mutable {
      try {
        result.emplace(work());
      } catch (...) {
        error = std::current_exception();
      }
      asio::post(loop, [resume = std::move(resume)] { std::move (*resume)(); });
    };
    try {
      worker_pools.submit(lane, share, std::move(step));
    } catch (...) {
      error = std::current_exception();
      asio::post(loop, [resume] { std::move (*resume)(); });
    }
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(initiate,
                                                                       asio::use_awaitable);
  if (error) std::rethrow_exception(error);
  co_return std::move(*result);
}

// Lets the loop sleep until another thread has news. A wake before wait() is not lost.
class Wake : public std::enable_shared_from_this<Wake> {
 public:
  explicit Wake(const asio::any_io_executor& loop) : timer_(loop) {}

  // Callable from any thread while the loop's io_context lives.
  std::function<void()> handle() {
    return [weak = weak_from_this(), loop = timer_.get_executor()] {
      const auto self = weak.lock();
      if (!self || self->posted_.exchange(true)) return;
      asio::post(loop, [weak] {
        if (const auto woken = weak.lock()) woken->ring();
      });
    };
  }
  // True: woken. False: timed out.
  Awaitable<bool> wait(std::chrono::milliseconds at_most) {
    if (!rung_) {
      timer_.expires_after(at_most);
      co_await timer_.async_wait(kAsTuple);
    }
    co_return std::exchange(rung_, false);
  }
  void ring() {
    posted_ = false;
    rung_ = true;
    timer_.cancel();
  }

 private:
  asio::steady_timer timer_;
  std::atomic<bool> posted_{false};
  bool rung_ = false;
};

}  // namespace moorage::daemon
