package io.github.headgate;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.LogManager;
import org.apache.catalina.Context;
import org.apache.catalina.LifecycleException;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/** Serves an application behind the filter with Tomcat. */
final class Serving {
    private Serving() {
    }

    /** Starts the application and returns its address. */
    static String start(Headgate gate) throws IOException, LifecycleException {
        LogManager.getLogManager().reset(); // no logs
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(Files.createTempDirectory("conformance").toString());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(0);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", null);
        FilterDef filter = new FilterDef();
        filter.setFilterName("headgate");
        filter.setFilter(new HeadgateFilter(gate, "api", r -> Map.of("user", r.getHeader("X-Plan") == null ? "nobody" : r.getHeader("X-Plan"))));
        filter.setAsyncSupported("true");
        context.addFilterDef(filter);
        FilterMap everything = new FilterMap();
        everything.setFilterName("headgate");
        everything.addURLPattern("/*");
        context.addFilterMap(everything);
        Wrapper application = Tomcat.addServlet(context, "application", new Application());
        application.setAsyncSupported(true);
        application.addMapping("/");
        tomcat.start();
        return "http://127.0.0.1:" + tomcat.getConnector().getLocalPort();
    }

    /** Says hello, at /slot from another thread. */
    private static final class Application extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException, ServletException {
            if (request.getParameter("fail") != null) throw new ServletException("the application failed");
            if (request.getServletPath().equals("/slot")) {
                AsyncContext later = request.startAsync();
                later.start(() -> {
                    try {
                        answer(request, response);
                        later.complete();
                    } catch (IOException e) {
                        // the client went: Tomcat ends the request, and may already use its objects for the next
                    }
                });
                return;
            }
            answer(request, response);
        }

        private static void answer(HttpServletRequest request, HttpServletResponse response) throws IOException {
            String status = request.getParameter("status");
            response.setStatus(status == null ? HttpServletResponse.SC_OK : Integer.parseInt(status));
            response.setContentType("text/plain;charset=utf-8");
            while (request.getParameter("stream") != null) { // until the client goes
                response.getOutputStream().print(".");
                response.flushBuffer();
                LockSupport.parkNanos(10_000_000);
            }
            List<String> marks = HeadgateFilter.soft(request);
            response.getWriter().write("hello " + request.getServletPath() + (marks.isEmpty() ? "" : " over " + String.join(", ", marks)));
        }
    }
}
