package io.github.headgate;

import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.BodySubscribers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow.Subscription;

/** The text of an answer, up to a size. */
final class Body implements BodySubscriber<String> {
    private static final int MAX = 8 << 20; // bytes; a batch of 1000 takes about 200 KiB
    private final BodySubscriber<String> text = BodySubscribers.ofString(StandardCharsets.UTF_8);
    private Subscription subscription;
    private long size;

    @Override
    public CompletionStage<String> getBody() {
        return text.getBody();
    }

    @Override
    public void onSubscribe(Subscription subscription) {
        this.subscription = subscription;
        text.onSubscribe(subscription);
    }

    @Override
    public void onNext(List<ByteBuffer> parts) {
        for (ByteBuffer part : parts) size += part.remaining();
        if (size <= MAX) {
            text.onNext(parts);
            return;
        }
        subscription.cancel();
        text.onError(Answer.malformed("the answer is too large"));
    }

    @Override
    public void onError(Throwable e) {
        text.onError(e);
    }

    @Override
    public void onComplete() {
        text.onComplete();
    }
}
