#include "link/stream.h"

#include "base/little_endian.h"
#include "other_side.h"

using namespace moorage;

namespace {

// Answers each data with a reset and another channel, as a refused connection of the network does.
class Talkative : public link::ChannelUser, public std::enable_shared_from_this<Talkative> {
 public:
  explicit Talkative(link::Stream& stream) : stream_(stream) {}
  void open() { channel_ = stream_.open(R"({"what":"x"})" + std::string(60'000, ' '), self()); }
  void on_data(std::string_view) override {
    stream_.reset(channel_, Error(Code::not_found, "refused"));
    open();
  }
  void on_end() override {}
  void on_over(const Error& reason) override { over = reason.message(); }
  std::weak_ptr<ChannelUser> self() { return weak_from_this(); }
  std::string over;

 private:
  link::Stream& stream_;
  uint32_t channel_ = 0;
};

}  // namespace

TEST_CASE("A machine that reads nothing of what it makes us say is given up, in bounded memory") {
  base::Loop loop;
  test::OtherSide there(loop);
  const auto user = std::make_shared<Talkative>(*there.stream);
  user->open();
  // Numbers of channels rise by one, so it need not read which ones are opened.
  uint32_t channel = 1;
  while (there.broken.empty() && channel < 1'000) {
    std::string frame;
    base::append_number(frame, static_cast<uint32_t>(base::MuxKind::data));
    base::append_number(frame, channel++);
    base::append_number(frame, uint32_t{1});
    there.send_unread(frame + "x");
  }
  CHECK(there.broken.find("does not read") != std::string::npos);
  CHECK(user->over == there.broken);
  CHECK(channel > (8 << 20) / 60'000);
}
