#include "egress/broker/pushes.h"

#include <algorithm>

namespace moorage::egress {

struct Pushes::Waiting {
  explicit Waiting(base::Loop& loop) : patience(loop) {}
  base::PushQuestion question;
  Then then;
  base::Timer patience;
};

Pushes::Ticket Pushes::ask(std::string repository, std::vector<base::PushCommand> commands,
                           Then then) {
  std::erase_if(waiting_, [](const auto& one) { return one.expired(); });
  if (waiting_.size() >= kMaxWaiting) return nullptr;
  auto one = std::make_shared<Waiting>(loop_);
  one->question = {++last_id_, std::move(repository), std::move(commands)};
  one->then = std::move(then);
  one->patience.start(
      kPatience, [this, id = one->question.id, count = one->question.commands.size()] {
        answer({id, std::vector<std::string>(count, "moorage did not decide in time; push again")});
      });
  waiting_.push_back(one);
  if (on_question_) on_question_();
  return one;
}

std::vector<base::PushQuestion> Pushes::waiting(uint64_t after) const {
  std::vector<base::PushQuestion> questions;
  for (const auto& weak : waiting_) {
    const auto one = weak.lock();
    if (one && one->question.id > after) questions.push_back(one->question);
  }
  return questions;
}

void Pushes::answer(const base::PushAnswer& answer) {
  const auto found = std::ranges::find_if(waiting_, [&answer](const auto& weak) {
    const auto one = weak.lock();
    return one && one->question.id == answer.id;
  });
  if (found == waiting_.end()) return;
  const auto one = found->lock();
  waiting_.erase(found);
  one->patience.stop();
  auto reasons = answer.reasons;
  const size_t count = one->question.commands.size();
  if (reasons.size() != count) reasons.assign(count, "moorage gave no answer");
  one->then(reasons);
}

std::vector<std::string> refused_by_policy(const base::PushPolicy& policy,
                                           const std::vector<base::PushCommand>& commands) {
  std::vector<std::string> reasons;
  for (const base::PushCommand& command : commands) {
    std::string why;
    if (policy.mode == base::PushMode::refuse)
      why = "this workspace may not push";
    else if (commands.size() > base::kMaxPushed)
      why = "at most " + std::to_string(base::kMaxPushed) + " refs in one push";
    else if (!base::may_push(policy, command.ref))
      why = "only these refs may be pushed: " + base::patterns_text(policy);
    else if (base::is_zero_id(command.new_id))
      why = "refs may not be deleted";
    else if (command.new_id == command.old_id)
      why = "it changes nothing";
    reasons.push_back(why);
  }
  return reasons;
}

bool must_ask(const base::PushPolicy& policy, const std::vector<base::PushCommand>& commands) {
  return policy.mode == base::PushMode::ask ||
         std::ranges::any_of(commands, [](const base::PushCommand& command) {
           return !base::is_zero_id(command.old_id);
         });
}

}  // namespace moorage::egress
